#!/bin/bash
# Llama 3 8B in fp8 on one host: the arguments of Megatron-LM's examples/llama, written anew.
#   orrery simulate llama3-8b-fp8.sh --set cluster=h100-ib-400g
DTYPE="fp8"
MODEL=(--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
  --num-query-groups 8 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192
  --position-embedding-type rope --rotary-base 1000000 --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu
  --normalization RMSNorm --attention-backend fused --apply-layernorm-1p --untie-embeddings-and-output-weights
  --disable-bias-linear)
TRAINING=(--micro-batch-size 1 --global-batch-size 128 --lr 0.00015 --clip-grad 1.0 --bf16 --grad-reduce-in-bf16
  --cross-entropy-loss-fusion --manual-gc --num-workers 1)
if [[ "$DTYPE" == "fp8" ]]; then
  TRAINING+=("--fp8-format hybrid" "--fp8-amax-history-len 1024" "--fp8-amax-compute-algo max" "--fp8-param-gather")
fi
PARALLEL=(--tensor-model-parallel-size 1 --context-parallel-size 1 --sequence-parallel
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather)
DATA=(--mock-data --tokenizer-type NullTokenizer --vocab-size 128256)
torchrun --nproc_per_node 8 --nnodes 1 "pretrain_gpt.py" ${MODEL[@]} ${TRAINING[@]} ${PARALLEL[@]} ${DATA[@]}
