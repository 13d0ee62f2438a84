#!/bin/bash
# Table 1 of Narayanan et al. 2021 ("Efficient Large-Scale Language Model Training on GPU Clusters Using
# Megatron-LM"): the arguments of Megatron-LM's examples/academic_paper_scripts/sc21/run_table_1.sh, written anew.
#   orrery import narayanan-2021.sh --env SIZE=145B --cluster a100-80g-ib-200g --set framework=megatron@2021.04
SIZE=${SIZE:-1.7B}
EXTRA=""
case $SIZE in
  1.7B) TP=1 PP=1 MBS=16 GBS=512 LAYERS=24 HIDDEN=2304 HEADS=24 NODES=4 ;;
  3.6B) TP=2 PP=1 MBS=16 GBS=512 LAYERS=30 HIDDEN=3072 HEADS=32 NODES=8 ;;
  7.5B) TP=4 PP=1 MBS=16 GBS=512 LAYERS=36 HIDDEN=4096 HEADS=32 NODES=16 ;;
  18B) TP=8 PP=1 MBS=8 GBS=1024 LAYERS=40 HIDDEN=6144 HEADS=48 NODES=32 ;;
  39B) TP=8 PP=2 MBS=4 GBS=1536 LAYERS=48 HIDDEN=8192 HEADS=64 NODES=64 ;;
  76B) TP=8 PP=4 MBS=2 GBS=1792 LAYERS=60 HIDDEN=10240 HEADS=80 NODES=128 EXTRA="--num-layers-per-virtual-pipeline-stage 5" ;;
  145B) TP=8 PP=8 MBS=2 GBS=2304 LAYERS=80 HIDDEN=12288 HEADS=96 NODES=192 EXTRA="--num-layers-per-virtual-pipeline-stage 5" ;;
  310B) TP=8 PP=16 MBS=1 GBS=2160 LAYERS=96 HIDDEN=16384 HEADS=128 NODES=240 EXTRA="--num-layers-per-virtual-pipeline-stage 3" ;;
  530B) TP=8 PP=35 MBS=1 GBS=2520 LAYERS=105 HIDDEN=20480 HEADS=128 NODES=315 EXTRA="--num-layers-per-virtual-pipeline-stage 1" ;;
  1T) TP=8 PP=64 MBS=1 GBS=3072 LAYERS=128 HIDDEN=25600 HEADS=160 NODES=384 ;;
esac

PARAMS=" ${EXTRA} --activations-checkpoint-method uniform \
  --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} \
  --micro-batch-size ${MBS} --global-batch-size ${GBS} \
  --num-layers ${LAYERS} --hidden-size ${HIDDEN} --num-attention-heads ${HEADS} \
  --seq-length 2048 --max-position-embeddings 2048 --DDP-impl local \
  --data-path ${DATA} --vocab-file ${VOCAB} --merge-file ${MERGES} \
  --train-iters 500 --lr-decay-iters 320 --lr 0.0001 --min-lr 0.00001 --lr-decay-style cosine \
  --lr-warmup-fraction 0.01 --clip-grad 1.0 --fp16 --loss-scale 8192 \
  --log-interval 5 --eval-iters 100 --eval-interval 1000 --split 969,30,1 "

srun --nodes=${NODES} --ntasks-per-node=8 sh -c "python -u pretrain_gpt.py ${PARAMS}"
