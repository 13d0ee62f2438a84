// Hugging Face families of one dense layout each (hugging_face_reader.h). Sources: the
// configuration and modelling files of transformers for each model_type.
#include <algorithm>

#include "orrery/workload/hugging_face_reader.h"

namespace orrery::workload::hugging_face {
namespace {

// What most call the same.
void ReadShapes(Reader* r, Model* m) {
  m->layers = r->Integer("num_hidden_layers");
  m->hidden = r->Integer("hidden_size");
  m->heads = r->Integer("num_attention_heads");
  m->kv_heads = r->IntegerOr("num_key_value_heads", m->heads);
  m->head_dim = r->IntegerOr("head_dim", 0);
  m->vocab = r->Integer("vocab_size");
}

void RequireGelu(Reader* r, std::string_view key) {
  r->Require(key, r->Text(key).starts_with("gelu"), "valid: gelu, gelu_new, gelu_pytorch_tanh");
}

}  // namespace

void ReadGpt2(Reader* r, Model* m) {
  m->layers = r->Integer("n_layer");
  m->hidden = r->Integer("n_embd");
  m->heads = r->Integer("n_head");
  m->kv_heads = m->heads;
  m->ffn_hidden = r->IntegerOr("n_inner", 4 * m->hidden);
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->Integer("n_positions");
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", true);
  m->dropout = std::max({r->FractionOr("resid_pdrop", 0.1), r->FractionOr("embd_pdrop", 0.1),
                         r->FractionOr("attn_pdrop", 0.1)});
  RequireGelu(r, "activation_function");
}

void ReadGptNeoX(Reader* r, Model* m) {
  ReadShapes(r, m);
  m->ffn_hidden = r->Integer("intermediate_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 2048);
  m->position = Position::kRotary;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", false);
  m->parallel_block = r->BoolOr("use_parallel_residual", true);
  m->attention_bias = r->BoolOr("attention_bias", true);
  m->dropout = std::max(r->FractionOr("attention_dropout", 0), r->FractionOr("hidden_dropout", 0));
  RequireGelu(r, "hidden_act");
}

void ReadOpt(Reader* r, Model* m) {
  ReadShapes(r, m);
  m->ffn_hidden = r->Integer("ffn_dim");
  m->max_position =
      r->IntegerOr("max_position_embeddings", 2048) + 2;  // two of its table are spare
  m->activation = Activation::kRelu;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", true);
  m->dropout = std::max(r->FractionOr("dropout", 0.1), r->FractionOr("attention_dropout", 0));
  r->Require("activation_function", r->Text("activation_function") == "relu", "valid: relu");
  r->Require("do_layer_norm_before", r->BoolOr("do_layer_norm_before", true),
             "norms behind the residual (OPT 350M) are built for encoders alone");
  r->Require("word_embed_proj_dim", r->IntegerOr("word_embed_proj_dim", m->hidden) == m->hidden,
             "embeddings of another width than hidden_size (OPT 350M) are not modelled");
  r->Require("enable_bias", r->BoolOr("enable_bias", true), "valid: true");
}

void ReadBloom(Reader* r, Model* m) {
  const auto either = [&](std::string_view name, std::string_view old) {
    return r->Present(name) == nullptr && r->Present(old) != nullptr ? old : name;
  };
  m->layers = r->Integer(either("n_layer", "num_hidden_layers"));
  m->hidden = r->Integer(either("hidden_size", "n_embed"));
  m->heads = r->Integer(either("n_head", "num_attention_heads"));
  m->kv_heads = m->heads;
  m->ffn_hidden = 4 * m->hidden;
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->IntegerOr("seq_length", 2048);
  m->position = Position::kNone;  // ALiBi
  m->embedding_norm = true;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", true);
  m->dropout = std::max(r->FractionOr("attention_dropout", 0), r->FractionOr("hidden_dropout", 0));
  r->Require("apply_residual_connection_post_layernorm",
             !r->BoolOr("apply_residual_connection_post_layernorm", false), "set it to false");
}

void ReadFalcon(Reader* r, Model* m) {
  ReadShapes(r, m);
  const bool renewed = r->BoolOr("new_decoder_architecture", false);
  m->kv_heads = renewed                          ? r->IntegerOr("num_kv_heads", m->heads)
                : r->BoolOr("multi_query", true) ? 1
                                                 : m->heads;
  m->ffn_hidden = r->IntegerOr("ffn_hidden_size", 4 * m->hidden);
  m->max_position = r->IntegerOr("max_position_embeddings", 2048);
  m->position = r->BoolOr("alibi", false) ? Position::kNone : Position::kRotary;
  m->parallel_block = renewed || r->BoolOr("parallel_attn", true);
  m->shared_norm =
      m->parallel_block && r->IntegerOr("num_ln_in_parallel_attn", renewed ? 2 : 1) == 1;
  m->attention_bias = m->mlp_bias = r->BoolOr("bias", false);
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", true);
  m->dropout = std::max(r->FractionOr("attention_dropout", 0), r->FractionOr("hidden_dropout", 0));
}

void ReadMpt(Reader* r, Model* m) {
  m->layers = r->Integer("n_layers");
  m->hidden = r->Integer("d_model");
  m->heads = r->Integer("n_heads");
  m->kv_heads = m->heads;
  m->ffn_hidden = r->IntegerOr("expansion_ratio", 4) * m->hidden;
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->IntegerOr("max_seq_len", 2048);
  m->attention_bias = m->mlp_bias = !r->BoolOr("no_bias", true);
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", true);
  m->dropout = std::max(r->FractionOr("resid_pdrop", 0), r->FractionOr("emb_pdrop", 0));
  m->position = Position::kNone;
  const Node* attention = r->Present("attn_config");
  const Node* alibi = attention == nullptr ? nullptr : attention->Find("alibi");
  if (alibi != nullptr && alibi->text == "false") m->position = Position::kLearned;
}

void ReadBert(Reader* r, Model* m) {
  ReadShapes(r, m);
  m->ffn_hidden = r->Integer("intermediate_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 512);
  m->encoder = true;
  m->dropout = std::max(r->FractionOr("hidden_dropout_prob", 0.1),
                        r->FractionOr("attention_probs_dropout_prob", 0.1));
  RequireGelu(r, "hidden_act");
  r->Require("type_vocab_size", r->IntegerOr("type_vocab_size", 2) == 2, "valid: 2");
  r->Require("is_decoder", !r->BoolOr("is_decoder", false), "set it to false: an encoder");
}

// Nemotron-4 and Minitron.
void ReadNemotron(Reader* r, Model* m) {
  ReadShapes(r, m);
  m->ffn_hidden = r->Integer("intermediate_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 4096);
  m->activation = Activation::kSquaredRelu;
  m->position = Position::kRotary;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", false);
  m->attention_bias = r->BoolOr("attention_bias", false);
  m->mlp_bias = r->BoolOr("mlp_bias", false);
  r->Require("hidden_act", r->Text("hidden_act") == "relu2", "valid: relu2");
}

void ReadStarCoder2(Reader* r, Model* m) {
  ReadShapes(r, m);
  m->ffn_hidden = r->Integer("intermediate_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 4096);
  m->position = Position::kRotary;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", true);
  m->attention_bias = m->mlp_bias = r->BoolOr("use_bias", true);
  m->dropout =
      std::max({r->FractionOr("residual_dropout", 0), r->FractionOr("embedding_dropout", 0),
                r->FractionOr("attention_dropout", 0)});
  RequireGelu(r, "hidden_act");
  ReadWindows(r, m);
}

}  // namespace orrery::workload::hugging_face
