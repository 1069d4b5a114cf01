//! OperatorConditions: the upgrade gate, overrides, roles and environment.
