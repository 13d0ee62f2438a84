// The ends of an encoder of images: patches in place of words, and one value an image in place of
// one a token (ViT, SigLIP, CLIP).
//
// Patches arrive as rows of pixels and a linear layer with a bias makes them tokens, as a
// convolution whose stride is its size does; learned positions are added. Behind the final norm the
// first token is the image's value, or attention from one learned query and a feed-forward make it
// (SigLIP's head), and the output layer sees as many rows as there are images. Every
// tensor-parallel rank holds both ends whole, but for the output layer. Not modelled: reading,
// cutting and normalising images, and losses that compare images across ranks.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// REQUIRES: s.patch_values > 0, no sequence parallelism. From pixels to tokens, and back to the
// gradients of weights and positions.
void PatchesForward(const Shape& s, BlockWriter* w);
void PatchesBackward(const Shape& s, BlockWriter* w);
// From the final norm's output to an image's value, and back.
void PoolForward(const Shape& s, BlockWriter* w);
void PoolBackward(const Shape& s, BlockWriter* w);
// As the output layer and the loss see it: a row an image.
Shape OfImages(const Shape& s);

}  // namespace orrery::workload
