//! Multi-token prediction: modules behind the last layer that each predict one more token.
//!
//! A module has a projection of the last output and the next token's embedding, both normed, one more layer of
//! the model's last kind, and the head again; the tables are the model's (DeepSeek-V3, 2412.19437, §2.2). With
//! width h it has 2·h² parameters, two norms, the layer's and a last norm. In a pipeline it counts as a layer.

use super::layer::{Cut, Flops, Layer};
use super::sizes::Sizes;

impl Sizes<'_> {
    /// A module: the last layer's kind of layer on a projection of its output and
    /// the next token's embedding, both normed, and the head, with tables that the model has.
    pub(super) fn next_token(&self, k: u32, layers: u32) -> [Layer; 4] {
        let (h, wide) = (self.hidden, self.wide());
        let projection = Layer {
            name: format!("mtp{k}.projection"),
            flops: Flops::linear(4 * wide * h),
            parameters: 2 * h * h,
            replicated: 2 * self.norm(),
            matrices: vec![[h, 2 * h]],
            moved: 2 * 3 * wide,
            output: wide,
            saved_whole: 4 * wide,
            cut: Cut::Tensor { forward: wide, backward: wide },
            kernels: self.next_token_kernels(),
            ..Layer::default()
        };
        let last = layers - 1;
        let attention = self.attention(format!("mtp{k}.attention"), false, self.spec.masks(last));
        let feed_forward = self.feed_forward(format!("mtp{k}.feed_forward"), last);
        let head = self.last();
        let head = Layer {
            name: format!("mtp{k}.head"),
            parameters: 0,
            replicated: self.norm(),
            matrices: Vec::new(),
            ..head
        };
        let block = |layer: Layer| Layer { unit: layers + k, block: true, ..layer };
        let [projection, attention, feed_forward] =
            [projection, attention, feed_forward].map(block);
        [projection, attention, feed_forward, Layer { unit: layers + k, ..head }]
    }
}
