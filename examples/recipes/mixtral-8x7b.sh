#!/bin/bash
# Mixtral 8x7B with Megatron Core: the arguments of Megatron-LM's examples/mixtral, written anew.
#   orrery import mixtral-8x7b.sh --env SLURM_NNODES=8 --cluster h100-ib-400g
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
LAUNCH=(--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank ${RANK:-0})
MODEL=(
  --use-mcore-models --disable-bias-linear --seq-length 4096 --max-position-embeddings 32768
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --attention-dropout 0.0 --hidden-dropout 0.0 --normalization RMSNorm --swiglu
  --position-embedding-type rope --rotary-base 1000000 --no-position-embedding
  --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 8
  --no-masked-softmax-fusion --init-method-std 0.01
)
EXPERTS=(
  --num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss
  --moe-aux-loss-coeff 1e-2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall
)
TRAINING=(--micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --train-iters 500000 --clip-grad 1.0 --bf16
  --tokenizer-type Llama2Tokenizer --tokenizer-model $1 --data-path $2)
PARALLEL=(--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8
  --use-distributed-optimizer --sequence-parallel --overlap-param-gather --overlap-grad-reduce)
if [ -n "${WANDB_API_KEY}" ]; then
  TRAINING+=(--wandb-project mixtral)
fi
torchrun ${LAUNCH[@]} pretrain_gpt.py ${MODEL[@]} ${EXPERTS[@]} ${TRAINING[@]} ${PARALLEL[@]}
