// 128-bit integers under one name: exact products of bytes, rates and picoseconds.
#pragma once

namespace orrery {

__extension__ typedef unsigned __int128 Uint128;
__extension__ typedef __int128 Int128;

}  // namespace orrery
