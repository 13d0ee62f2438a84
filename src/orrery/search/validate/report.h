// A validation report as JSON, as text for a terminal, and as a picture.
#pragma once

#include <string>

#include "orrery/search/validate/validate.h"

namespace orrery::search {

// "schema": "orrery.validation/1" (docs/formats/validation.md). One document, a newline at its end.
std::string ReportToJson(const Report& report);

// Tables per stratum and source with coverage beside every error, why rows were refused, and the
// worst rows.
std::string ReportToText(const Report& report);

// SVG: predicted against measured on logarithmic axes, a colour per stratum; and the errors of each
// source with their median. Says so where nothing can be compared.
std::string ReportToSvg(const Report& report);

}  // namespace orrery::search
