//! ClusterServiceVersions: phases, requirements, replacement chains and the objects of the install strategy.
