//! The tests of `allrail-jobs`, one module a subject, linked once.

mod loads;
mod placement_boxes;
mod placement_oracle;
mod placement_queue;
mod placement_shapes;
mod placement_table;
mod running;
