// What an operation on rows reads and writes, said once for everything that reasons about programs.
#pragma once

#include <type_traits>

#include "runner/phases.h"

namespace octavo {

// Calls visitor.read(view), visitor.read_other(view) where that is a view of other rows, then visitor.write(view). K and V in
// the cache and prepared rows are no views.
template <class Op, class Visitor>
void visit_views(Op& op, Visitor& visitor) {
  using T = std::remove_const_t<Op>;
  if constexpr (std::is_same_v<T, EmbedRow>) {
    visitor.write(op.out);
  } else if constexpr (std::is_same_v<T, RmsNormRow> || std::is_same_v<T, RopeRow>) {
    visitor.read(op.x), visitor.write(op.out);
  } else if constexpr (std::is_same_v<T, WriteKvRow>) {
    visitor.read(op.k), visitor.read(op.v);
  } else if constexpr (std::is_same_v<T, GatedActivationRow>) {
    visitor.read(op.gate), visitor.read(op.up), visitor.write(op.out);
  } else if constexpr (std::is_same_v<T, AddRow>) {
    visitor.read(op.a), visitor.read(op.b), visitor.write(op.out);
  } else if constexpr (std::is_same_v<T, SelectRow>) {
    visitor.read_other(op.x), visitor.write(op.out);
  } else {
    static_assert(std::is_same_v<T, PrepareRow>);
    visitor.read(op.x);
  }
}

}  // namespace octavo
