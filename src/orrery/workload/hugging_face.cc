// Hugging Face config.json → Model. Fields that change no shape (rope_scaling, initializer_range,
// …) are ignored; those that would change the computation are checked.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "orrery/base/file.h"
#include "orrery/base/suggest.h"
#include "orrery/base/text.h"
#include "orrery/formats/tree.h"
#include "orrery/workload/model.h"

namespace orrery::workload {

namespace {

using formats::Document;
using formats::Node;

constexpr std::int64_t kMostBytes = 1 << 20;
constexpr std::array<std::string_view, 12> kTypes = {
    "gpt2",      "llama",       "mistral",     "qwen2",   "qwen3",   "mixtral",
    "qwen3_moe", "deepseek_v2", "deepseek_v3", "kimi_k2", "gpt_oss", "nemotron_h"};

// Reads typed fields of one document; the first error stays.
class Reader {
 public:
  Reader(const Document& document, std::string path)
      : document_(document), path_(std::move(path)) {}

  std::int64_t Integer(std::string_view key) {
    const Node* node = Present(key);
    if (node == nullptr) {
      Fail(InvalidInput("{}: {} is missing; add it, or take the model's whole config.json", path_,
                        key));
      return 0;
    }
    return Parse(key, *node);
  }
  std::int64_t IntegerOr(std::string_view key, std::int64_t fallback) {
    const Node* node = Present(key);
    return node == nullptr ? fallback : Parse(key, *node);
  }
  bool BoolOr(std::string_view key, bool fallback) {
    const Node* node = Present(key);
    if (node == nullptr) return fallback;
    if (!node->quoted && node->text == "true") return true;
    if (!node->quoted && node->text == "false") return false;
    Fail(Wrong(key, *node, "true or false"));
    return fallback;
  }
  double FractionOr(std::string_view key, double fallback) {
    const Node* node = Present(key);
    if (node == nullptr) return fallback;
    double value = 0;
    const char* end = node->text.data() + node->text.size();
    const auto [at, error] = std::from_chars(node->text.data(), end, value);
    if (!node->quoted && error == std::errc() && at == end && value >= 0 && value < 1) return value;
    Fail(Wrong(key, *node, "a number from 0 to 1"));
    return fallback;
  }
  std::string Text(std::string_view key) {
    const Node* node = Present(key);
    return node == nullptr ? "" : node->text;
  }
  // Refuses a field whose value would change the computation.
  void Require(std::string_view key, bool holds, std::string_view remedy) {
    const Node* node = Present(key);
    if (holds || node == nullptr) return;
    Fail(InvalidInput("{}: {} '{}' is not supported; {}", Where(*node), key, Printable(node->text),
                      remedy));
  }
  // Null and missing are the same.
  const Node* Present(std::string_view key) const {
    const Node* node = document_.root.Find(key);
    return node == nullptr || node->kind == Node::Kind::kNull ? nullptr : node;
  }
  const std::string& path() const { return path_; }
  std::string Where(const Node& node) const { return document_.Where(node); }
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  std::int64_t Parse(std::string_view key, const Node& node) {
    std::int64_t value = 0;
    const char* end = node.text.data() + node.text.size();
    const auto [at, error] = std::from_chars(node.text.data(), end, value);
    if (node.kind == Node::Kind::kScalar && !node.quoted && error == std::errc() && at == end &&
        value >= 1) {
      return value;
    }
    Fail(Wrong(key, node, "a whole number from 1"));
    return 1;
  }
  Status Wrong(std::string_view key, const Node& node, std::string_view expected) const {
    if (node.kind != Node::Kind::kScalar) {
      return InvalidInput("{}: {} is a {}; write {}", Where(node), key,
                          node.kind == Node::Kind::kList ? "list" : "map", expected);
    }
    return InvalidInput("{}: {} is {}{}{}; write {}", Where(node), key, node.quoted ? "'" : "",
                        Printable(node.text), node.quoted ? "'" : "", expected);
  }

  const Document& document_;
  std::string path_;
  Status status_;
};

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
  r->Require("activation_function", r->Text("activation_function").starts_with("gelu"),
             "valid: gelu, gelu_new, gelu_pytorch_tanh");
}

void ReadLlama(Reader* r, bool mistral, Model* m) {
  m->layers = r->Integer("num_hidden_layers");
  m->hidden = r->Integer("hidden_size");
  m->heads = r->Integer("num_attention_heads");
  m->kv_heads = r->IntegerOr("num_key_value_heads", mistral ? 8 : m->heads);
  m->head_dim = r->IntegerOr("head_dim", 0);
  m->ffn_hidden = r->Integer("intermediate_size");
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 2048);
  m->norm = Norm::kRmsNorm;
  m->activation = Activation::kSwiglu;
  m->position = Position::kRotary;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", false);
  m->attention_bias = !mistral && r->BoolOr("attention_bias", false);
  m->mlp_bias = !mistral && r->BoolOr("mlp_bias", false);
  r->Require("hidden_act", r->Text("hidden_act") == "silu", "valid: silu");
  r->Require("attention_dropout", r->FractionOr("attention_dropout", 0) == 0,
             "set it to 0: these models train without");
  if (mistral) {
    r->Require("sliding_window", false,
               "sliding-window attention is not modelled yet; set it to null for full attention");
  }
}

// Experts as Mixtral, Qwen3 and GPT-OSS name them.
void ReadExperts(Reader* r, std::string_view count, std::string_view width, Model* m) {
  m->experts.count = r->Integer(count);
  m->experts.top_k = r->Integer("num_experts_per_tok");
  m->experts.ffn_hidden = r->Integer(width);
}

void ReadDeepSeek(Reader* r, Model* m) {
  ReadExperts(r, "n_routed_experts", "moe_intermediate_size", m);
  m->experts.shared_ffn_hidden = r->Present("n_shared_experts") == nullptr
                                     ? 0
                                     : r->Integer("n_shared_experts") * m->experts.ffn_hidden;
  // 0 is a legal value of this field alone.
  const Node* dense = r->Present("first_k_dense_replace");
  m->experts.first_dense =
      dense == nullptr || dense->text == "0" ? 0 : r->Integer("first_k_dense_replace");
  r->Require("moe_layer_freq", r->Text("moe_layer_freq") == "1", "valid: 1");
  Latent& l = m->latent;
  l.q_rank = r->IntegerOr("q_lora_rank", 0);
  l.kv_rank = r->Integer("kv_lora_rank");
  l.nope_dim = r->Integer("qk_nope_head_dim");
  l.rope_dim = r->Integer("qk_rope_head_dim");
  l.v_dim = r->Integer("v_head_dim");
  m->head_dim = l.nope_dim + l.rope_dim;
}

// What differs from Llama in the families that share its layout.
void ReadFamily(Reader* r, std::string_view type, Model* m) {
  if (type == "qwen2") {
    m->attention_bias = true;
    m->projection_bias = false;
    r->Require("use_sliding_window", !r->BoolOr("use_sliding_window", false), "set it to false");
  }
  if (type == "qwen3" || type == "qwen3_moe") m->qk_norm = true;
  if (type == "qwen3_moe") {
    ReadExperts(r, "num_experts", "moe_intermediate_size", m);
    r->Require("decoder_sparse_step", r->IntegerOr("decoder_sparse_step", 1) == 1, "valid: 1");
  }
  if (type == "mixtral") {
    ReadExperts(r, "num_local_experts", "intermediate_size", m);
    r->Require("sliding_window", false, "sliding windows in all layers: set it to null");
  }
  if (type == "gpt_oss") {
    ReadExperts(r, "num_local_experts", "intermediate_size", m);
    m->attention_bias = m->mlp_bias = m->sinks = m->experts.router_bias = true;
    m->window = r->IntegerOr("sliding_window", 128);
    m->full_every = 2;
  }
  if (type.starts_with("deepseek") || type == "kimi_k2") ReadDeepSeek(r, m);
}

// Nemotron-H and Nemotron 3. Attention has no positions.
void ReadNemotronH(Reader* r, Model* m) {
  m->pattern = r->Text("hybrid_override_pattern");
  m->layers = r->Integer("num_hidden_layers");
  m->hidden = r->Integer("hidden_size");
  m->heads = r->Integer("num_attention_heads");
  m->kv_heads = r->IntegerOr("num_key_value_heads", m->heads);
  m->head_dim = r->IntegerOr("head_dim", r->IntegerOr("attention_head_dim", 128));
  m->ffn_hidden = r->Integer("intermediate_size");
  m->vocab = r->Integer("vocab_size");
  m->max_position = r->IntegerOr("max_position_embeddings", 8192);
  m->norm = Norm::kRmsNorm;
  m->activation = Activation::kSquaredRelu;
  m->position = Position::kNone;
  m->tied_embeddings = r->BoolOr("tie_word_embeddings", false);
  m->attention_bias = r->BoolOr("attention_bias", false);
  m->mlp_bias = r->BoolOr("mlp_bias", false);
  m->mamba = {.heads = r->Integer("mamba_num_heads"),
              .head_dim = r->Integer("mamba_head_dim"),
              .state = r->Integer("ssm_state_size"),
              .groups = r->Integer("n_groups"),
              .conv = r->IntegerOr("conv_kernel", 4),
              .chunk = r->IntegerOr("chunk_size", 128)};
  r->Require("mlp_hidden_act", r->Text("mlp_hidden_act") == "relu2", "valid: relu2");
  if (m->pattern.empty()) {
    r->Fail(InvalidInput("{}: hybrid_override_pattern is missing; it says what each layer is",
                         r->path()));
  }
  if (m->pattern.find('E') == std::string::npos) return;
  ReadExperts(r, "n_routed_experts", "moe_intermediate_size", m);
  m->experts.shared_ffn_hidden = r->IntegerOr("moe_shared_expert_intermediate_size", 0);
  m->experts.latent = r->IntegerOr("moe_latent_size", 0);
}

}  // namespace

Result<Model> ReadHuggingFaceConfig(const std::string& path) {
  ORRERY_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  Result<Document> parsed = formats::ParseJson(text, path);
  if (!parsed.ok()) {
    return InvalidInput("{} (the file has {} bytes); take the model's whole config.json",
                        parsed.status().message(), text.size());
  }
  const Document& document = *parsed;
  if (document.root.kind != Node::Kind::kMap) {
    return InvalidInput("{}: a config.json is one JSON object, this is not", path);
  }
  Reader r(document, path);
  const std::string type = r.Text("model_type");
  if (type.empty()) {
    return InvalidInput("{}: model_type is missing; valid: {}", path, fmt::join(kTypes, ", "));
  }
  Model m;
  m.name = r.Text("_name_or_path").empty() ? path : r.Text("_name_or_path");
  m.source = path;
  if (type == "gpt2") {
    ReadGpt2(&r, &m);
  } else if (type == "nemotron_h") {
    ReadNemotronH(&r, &m);
  } else if (std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end()) {
    ReadLlama(&r, type == "mistral", &m);
    ReadFamily(&r, type, &m);
  } else {
    return InvalidInput("{}: {}", r.Where(*r.Present("model_type")),
                        UnknownName("model_type", Printable(type), kTypes));
  }
  if (!r.status().ok()) return r.status();
  if (m.head_dim == 0) {
    if (m.hidden % m.heads != 0) {
      return InvalidInput("{}: {} attention heads do not divide the hidden size {}; give head_dim",
                          path, m.heads, m.hidden);
    }
    m.head_dim = m.hidden / m.heads;
  }
  if (Status status = Validate(m); !status.ok()) return std::move(status).In(path);
  return m;
}

}  // namespace orrery::workload
