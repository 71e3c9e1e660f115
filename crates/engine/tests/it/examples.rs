//! Examples that check themselves.

#[path = "../../examples/in_memory.rs"]
mod in_memory;

#[test]
fn two_ranks_sum_over_buffers_in_memory() {
    in_memory::main();
}
