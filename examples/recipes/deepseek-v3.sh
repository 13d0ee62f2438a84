#!/bin/bash
# DeepSeek-V3 with Megatron-FSDP: the arguments of Megatron-LM's examples/megatron_fsdp, written anew, but for what
# trains further tokens and gradients of 16 bits.
#   orrery import deepseek-v3.sh --cluster h100-ib-400g --nodes 32
TP=${TP:-1}
EP=${EP:-8}
ARGS=(
  --tensor-model-parallel-size ${TP} --expert-model-parallel-size ${EP} --expert-tensor-parallel-size 1
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --sequence-parallel --use-flash-attn
  --disable-bias-linear --micro-batch-size 4 --global-batch-size 2048 --recompute-granularity selective
  --recompute-modules mlp moe mla_up_proj layernorm --transformer-impl transformer_engine --seq-length 4096
  --tokenizer-type HuggingFaceTokenizer --tokenizer-model deepseek-ai/DeepSeek-V3 --make-vocab-size-divisible-by 3232
  --num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128
  --max-position-embeddings 4096 --position-embedding-type rope --normalization RMSNorm --norm-epsilon 1e-6 --swiglu
  --untie-embeddings-and-output-weights --multi-latent-attention --attention-dropout 0.0 --hidden-dropout 0.0
  --qk-layernorm --num-experts 256 --moe-layer-freq [0]*3+[1]*58 --moe-ffn-hidden-size 2048
  --moe-shared-expert-intermediate-size 2048 --moe-router-load-balancing-type seq_aux_loss --moe-router-topk 8
  --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep --moe-grouped-gemm --moe-permute-fusion
  --moe-router-force-load-balancing --moe-router-score-function sigmoid --moe-router-dtype fp32
  --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
  --rotary-scaling-factor 40 --mscale 1.0 --mscale-all-dim 1.0 --bf16
)
if [ "${USE_MEGATRON_FSDP:-1}" = 1 ]; then
  ARGS=("${ARGS[@]}" --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params
    --no-gradient-accumulation-fusion --calculate-per-token-loss --fsdp-double-buffer --use-nccl-ub)
fi
CMD="
cd /opt/megatron;
python pretrain_gpt.py ${ARGS[@]}"
sbatch <<END
srun --ntasks-per-node=8 bash -c "${CMD}" 2>&1 | tee log
END
