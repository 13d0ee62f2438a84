// Hugging Face families of one dense layout each (hugging_face_reader.h). Sources: the
// configuration and modelling files of transformers for each model_type.
#include <algorithm>

#include "orrery/workload/hugging_face_reader.h"

namespace orrery::workload::hugging_face {
namespace {

void RequireGelu(Reader* r, std::string_view key) {
  r->Require(key, r->Text(key).starts_with("gelu"), "valid: gelu, gelu_new, gelu_pytorch_tanh");
}

void ReadGpt2(Reader* r, Model* m) {
  m->dropout = std::max({r->FractionOr("resid_pdrop", 0.1), r->FractionOr("embd_pdrop", 0.1),
                         r->FractionOr("attn_pdrop", 0.1)});
  RequireGelu(r, "activation_function");
}

void ReadGptNeoX(Reader* r, Model* m) {
  m->parallel_block = r->BoolOr("use_parallel_residual", true);
  m->dropout = std::max(r->FractionOr("attention_dropout", 0), r->FractionOr("hidden_dropout", 0));
  RequireGelu(r, "hidden_act");
}

void ReadOpt(Reader* r, Model* m) {
  m->max_position += 2;  // two of its table are spare
  m->dropout = std::max(r->FractionOr("dropout", 0.1), r->FractionOr("attention_dropout", 0));
  r->Require("activation_function", r->Text("activation_function") == "relu", "valid: relu");
  r->Require("do_layer_norm_before", r->BoolOr("do_layer_norm_before", true),
             "norms behind the residual (OPT 350M) are built for encoders alone");
  r->Require("word_embed_proj_dim", r->IntegerOr("word_embed_proj_dim", m->hidden) == m->hidden,
             "embeddings of another width than hidden_size (OPT 350M) are not modelled");
  r->Require("enable_bias", r->BoolOr("enable_bias", true), "valid: true");
}

void ReadBloom(Reader* r, Model* m) {
  m->embedding_norm = true;
  m->dropout = std::max(r->FractionOr("attention_dropout", 0), r->FractionOr("hidden_dropout", 0));
  r->Require("apply_residual_connection_post_layernorm",
             !r->BoolOr("apply_residual_connection_post_layernorm", false), "set it to false");
}

void ReadFalcon(Reader* r, Model* m) {
  const bool renewed = r->BoolOr("new_decoder_architecture", false);
  m->kv_heads = renewed                          ? r->IntegerOr("num_kv_heads", m->heads)
                : r->BoolOr("multi_query", true) ? 1
                                                 : m->heads;
  m->position = r->BoolOr("alibi", false) ? Position::kNone : Position::kRotary;
  m->parallel_block = renewed || r->BoolOr("parallel_attn", true);
  m->shared_norm =
      m->parallel_block && r->IntegerOr("num_ln_in_parallel_attn", renewed ? 2 : 1) == 1;
  m->dropout = std::max(r->FractionOr("attention_dropout", 0), r->FractionOr("hidden_dropout", 0));
}

void ReadMpt(Reader* r, Model* m) {
  m->ffn_hidden = r->IntegerOr("expansion_ratio", 4) * m->hidden;
  m->attention_bias = m->mlp_bias = !r->BoolOr("no_bias", true);
  m->dropout = std::max(r->FractionOr("resid_pdrop", 0), r->FractionOr("emb_pdrop", 0));
  const Node* attention = r->Present("attn_config");
  const Node* alibi = attention == nullptr ? nullptr : attention->Find("alibi");
  if (alibi != nullptr && alibi->text == "false") m->position = Position::kLearned;
}

void ReadBert(Reader* r, Model* m) {
  m->encoder = true;
  m->dropout = std::max(r->FractionOr("hidden_dropout_prob", 0.1),
                        r->FractionOr("attention_probs_dropout_prob", 0.1));
  RequireGelu(r, "hidden_act");
  r->Require("type_vocab_size", r->IntegerOr("type_vocab_size", 2) == 2, "valid: 2");
  r->Require("is_decoder", !r->BoolOr("is_decoder", false), "set it to false: an encoder");
}

void ReadNemotron(Reader* r, Model* /*m*/) {
  r->Require("hidden_act", r->Text("hidden_act") == "relu2", "valid: relu2");
}

void ReadStarCoder2(Reader* r, Model* m) {
  m->dropout =
      std::max({r->FractionOr("residual_dropout", 0), r->FractionOr("embedding_dropout", 0),
                r->FractionOr("attention_dropout", 0)});
  RequireGelu(r, "hidden_act");
  ReadWindows(r, m);
}

constexpr Norm kLayerNorm = Norm::kLayerNorm;
constexpr Flag kTied = {"tie_word_embeddings", true}, kBiased = {"", true};

constexpr Family kFamilies[] = {
    {"gpt2",
     {.layers = {"n_layer"},
      .hidden = {"n_embd"},
      .heads = {"n_head"},
      .kv_heads = {},
      .head_dim = {"", 0},
      .ffn = {"n_inner"},
      .ffn_times = 4,
      .positions = {"n_positions"},
      .tied = kTied,
      .attention_bias = kBiased,
      .mlp_bias = kBiased,
      .norm = kLayerNorm,
      .activation = Activation::kGelu,
      .position = Position::kLearned},
     ReadGpt2},
    {"gpt_neox",
     {.attention_bias = {"attention_bias", true},
      .mlp_bias = kBiased,
      .norm = kLayerNorm,
      .activation = Activation::kGelu},
     ReadGptNeoX},
    {"opt",
     {.ffn = {"ffn_dim"},
      .tied = kTied,
      .attention_bias = kBiased,
      .mlp_bias = kBiased,
      .norm = kLayerNorm,
      .activation = Activation::kRelu,
      .position = Position::kLearned},
     ReadOpt},
    {"bloom",
     {.layers = {"n_layer|num_hidden_layers"},
      .hidden = {"hidden_size|n_embed"},
      .heads = {"n_head|num_attention_heads"},
      .kv_heads = {},
      .head_dim = {"", 0},
      .ffn = {},
      .ffn_times = 4,
      .positions = {"seq_length", 2048},
      .tied = kTied,
      .attention_bias = kBiased,
      .mlp_bias = kBiased,
      .norm = kLayerNorm,
      .activation = Activation::kGelu,
      .position = Position::kNone},  // ALiBi
     ReadBloom},
    {"falcon",
     {.kv_heads = {},
      .ffn = {"ffn_hidden_size"},
      .ffn_times = 4,
      .tied = kTied,
      .attention_bias = {"bias", false},
      .mlp_bias = {"bias", false},
      .norm = kLayerNorm,
      .activation = Activation::kGelu},
     ReadFalcon},
    {"mpt",
     {.layers = {"n_layers"},
      .hidden = {"d_model"},
      .heads = {"n_heads"},
      .kv_heads = {},
      .head_dim = {"", 0},
      .ffn = {},
      .ffn_times = 4,
      .positions = {"max_seq_len", 2048},
      .tied = kTied,
      .norm = kLayerNorm,
      .activation = Activation::kGelu,
      .position = Position::kNone},
     ReadMpt},
    {"bert",
     {.positions = {"max_position_embeddings", 512},
      .tied = {"", true},
      .attention_bias = kBiased,
      .mlp_bias = kBiased,
      .norm = kLayerNorm,
      .activation = Activation::kGelu,
      .position = Position::kLearned},
     ReadBert},
    // Nemotron-4 and Minitron.
    {"nemotron",
     {.positions = {"max_position_embeddings", 4096},
      .norm = kLayerNorm,
      .activation = Activation::kSquaredRelu},
     ReadNemotron},
    {"starcoder2",
     {.positions = {"max_position_embeddings", 4096},
      .tied = kTied,
      .attention_bias = {"use_bias", true},
      .mlp_bias = {"use_bias", true},
      .norm = kLayerNorm,
      .activation = Activation::kGelu},
     ReadStarCoder2},
};

}  // namespace

std::span<const Family> DenseFamilies() { return kFamilies; }

}  // namespace orrery::workload::hugging_face
