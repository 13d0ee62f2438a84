#include "orrery/search/validate/test_cases.h"

#include <fmt/format.h>

#include <string_view>

#include "orrery/search/validate/config_extra.h"

namespace orrery::search {
namespace {

using workload::Model;

void Untied(Model* m) { m->tied_embeddings = false; }
void NoBiases(Model* m) { m->attention_bias = m->mlp_bias = false; }
void NoDropout(Model* m) { m->dropout = 0; }

// The default of --swiglu: two thirds of 4·hidden, in steps of 64.
void GatedWidth(Model* m) {
  m->activation = workload::Activation::kSwiglu;
  m->ffn_hidden = m->hidden * 8 / 3 / 64 * 64;
  if (m->experts.count > 0) m->experts.ffn_hidden = m->ffn_hidden;
}

void ExpertWidths(Model* m, std::int64_t each, std::int64_t shared, std::int64_t first_dense) {
  m->experts.ffn_hidden = each;
  m->experts.shared_ffn_hidden = shared;
  m->experts.first_dense = first_dense;
}

struct Fact {
  std::string_view of;  // part of the case's name, behind its "case="
  std::string_view says;
  void (*apply)(Model*);
};
constexpr Fact kFacts[] = {
    {"gpt3_7b_", "vocab 131073, untied",
     [](Model* m) {
       m->vocab = 131073;
       Untied(m);
     }},
    {"unti", "untied embeddings", Untied},
    {"uneven_pipeline", "untied embeddings", Untied},
    {"embedding_loss_in", "untied embeddings", Untied},
    {"rope_embeddings", "rotary positions",
     [](Model* m) { m->position = workload::Position::kRotary; }},
    {"disable_bias_linear", "no biases", NoBiases},
    {"expert", "no biases", NoBiases},
    {"_swiglu", "swiglu", GatedWidth},
    {"op_fuser", "swiglu", GatedWidth},
    {"mcore_cp2", "no dropout", NoDropout},
    {"_pp1_cp2", "no dropout", NoDropout},
    {"_pp2_cp2", "no dropout", NoDropout},
    {"dist_cp2", "no dropout", NoDropout},
    {"cp4_a2a", "no dropout", NoDropout},
    {"gpt3_weekly", "RMSNorm", [](Model* m) { m->norm = workload::Norm::kRmsNorm; }},
    {"_pp2_mla", "latent ranks 192 and 64, heads of 16 + 8, GPT's layers",
     [](Model* m) {
       m->latent = {.q_rank = 192, .kv_rank = 64, .nope_dim = 16, .rope_dim = 8, .v_dim = 16};
       m->head_dim = 24;
       m->norm = workload::Norm::kLayerNorm;
       m->activation = workload::Activation::kGelu;
       m->mlp_bias = true;
       m->dropout = 0.1;
     }},
    {"ep4_etp1_", "latent rank 1536 of queries, experts and a shared one of 1024",
     [](Model* m) {
       if (m->latent.kv_rank == 0) return;
       m->latent.q_rank = 1536;
       ExpertWidths(m, 1024, 1024, 1);
     }},
    {"fine_grained", "three dense layers", [](Model* m) { m->experts.first_dense = 3; }},
    {"selective_recompute_exp", "three dense layers", [](Model* m) { m->experts.first_dense = 3; }},
    {"deepseek_proxy", "latent ranks 256 and 128, experts and a shared one of 1024",
     [](Model* m) {
       if (m->latent.kv_rank == 0) return;
       m->latent.q_rank = 256;
       m->latent.kv_rank = 128;
       ExpertWidths(m, 1024, 1024, m->layers > 2 ? 3 : 1);
     }},
    {"te_ep8_", "experts of 1024, no biases",
     [](Model* m) {
       NoBiases(m);
       ExpertWidths(m, 1024, 0, 0);
     }},
    {"tp4_ep2_etp2", "experts of 1024, a shared one of 512, no biases",
     [](Model* m) {
       NoBiases(m);
       ExpertWidths(m, 1024, 512, 0);
     }},
    {"scoped_cudagraph", "rotary positions, untied, no dropout, four dense layers",
     [](Model* m) {
       m->position = workload::Position::kRotary;
       Untied(m);
       NoDropout(m);
       m->experts.first_dense = 4;
     }},
    {"nemotron3_5", "vocab 50257", [](Model* m) { m->vocab = 50257; }},
    {"nemotron3_5_lightning_no_load", "14 layers of 768, 32 experts of 512",
     [](Model* m) {
       m->pattern = "MEMEM*EMEMEM*E";
       m->layers = 14;
       m->hidden = 768;
       m->heads = 8;
       m->kv_heads = 2;
       m->head_dim = 64;
       m->ffn_hidden = 512;
       m->mamba.heads = 16;
       ExpertWidths(m, 512, 1024, 0);
       m->experts.count = 32;
       m->experts.top_k = 4;
     }},
};

}  // namespace

void ApplyTestCase(const Configuration& row, Model* model, std::vector<std::string>* assumed) {
  const auto test_case = Behind(row, "case=");
  if (!test_case) return;
  const std::string_view name = test_case->substr(0, test_case->find('+'));
  const Model columns = *model;
  for (const Fact& fact : kFacts) {
    if (name.find(fact.of) == std::string_view::npos) continue;
    fact.apply(model);
    assumed->push_back(fmt::format("{} (the test case's YAML)", fact.says));
  }
  if (row.has("ffn_hidden")) model->ffn_hidden = columns.ffn_hidden;
  if (row.has("vocab")) model->vocab = columns.vocab;
}

}  // namespace orrery::search
