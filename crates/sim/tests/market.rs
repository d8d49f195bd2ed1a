//! Jobs on recorded and invented markets: both ways to play them agree, and nobody is late.

#[path = "market/both_paths.rs"]
mod both_paths;
#[path = "market/never_late.rs"]
mod never_late;
