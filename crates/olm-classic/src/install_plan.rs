//! Install plans: steps and their order, approval, phases and retries.
