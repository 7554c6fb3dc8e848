//! Delivery state of a party at rest.
