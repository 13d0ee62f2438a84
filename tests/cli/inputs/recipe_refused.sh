#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 1 pretrain_gpt.py --num-layers $LAYERS --hidden-size 1024 \
  --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --global-batch-size 64 \
  --tensor-model-paralel-size 2 --fp32-residual-connection --bf16 --vocab-size 50257
