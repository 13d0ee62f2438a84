#!/bin/bash
# Mamba-2 hybrid 8B (Waleffe et al. 2024): the arguments of Megatron-LM's examples/mamba, written anew.
#   orrery import mamba2-hybrid-8b.sh --cluster h100-ib-400g --nodes 1
case "8B" in
  "800M") TP=1 PATTERN="M-M-M--M-*M-M-M-M--*M-M-M-M-*M--M-M-M-*M-M--M-M-" HIDDEN=1024 HEADS=16 BATCH=32 ;;
  "8B") TP=4 PATTERN="M-M-M--M-M*-M-M-M-M--M*-M-M-M-M-M*--M-M-M-M-M*-M--M-M-M-" HIDDEN=4096 HEADS=32 BATCH=8 ;;
esac
options=" \
  --tensor-model-parallel-size $TP --sequence-parallel --pipeline-model-parallel-size 1 \
  --use-distributed-optimizer --overlap-param-gather --overlap-grad-reduce \
  --hybrid-layer-pattern $PATTERN --hidden-size $HIDDEN --num-attention-heads $HEADS \
  --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 \
  --position-embedding-type none --untie-embeddings-and-output-weights --squared-relu \
  --attention-dropout 0.0 --hidden-dropout 0.0 --disable-bias-linear --normalization RMSNorm \
  --micro-batch-size 4 --global-batch-size $BATCH --bf16 --spec hybrid_layer_specs hybrid_stack_spec \
  --tokenizer-type GPTSentencePieceTokenizer --tokenizer-model 256k.model --padded-vocab-size 256000"
run="torchrun --nproc_per_node 8 pretrain_hybrid.py ${options}"
echo $run
eval ${run}
