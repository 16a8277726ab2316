// Linear layers on grouped weights, which are expanded to the layer's dtype: a group at a time into a core's first cache
// where all rows fit the accumulators, otherwise a whole panel at once.

#pragma once

#include <vector>

#include "grouped_product.h"
#include "panel_linear.h"

template <class Product, int BITS, class T>
class GroupedPanels {
public:
    static constexpr int MAX_ROWS = Product::MAX_ROWS;

    using X = typename Product::X;

    GroupedPanels(const Weight& weight, const X* x, int64_t rows)
        : groups(static_cast<const Group<BITS>*>(weight.data)),
          x(x),
          inputs(weight.inputs),
          at_once(rows <= MAX_ROWS) {}

    void begin(int64_t panel, int part) const {
        const int64_t num_groups = inputs / GROUP;
        auto& expanded = tiles()[part];
        const size_t num_tiles = at_once ? 2 : num_groups;
        if (expanded.size() < num_tiles) expanded.resize(num_tiles);
        if (at_once) return;
        for (int64_t g = 0; g < num_groups; g++) expand(groups[panel * num_groups + g], expanded[g]);
    }

    void end() const { Product::end(); }

    void multiply(int64_t panel, int part, int64_t first, int64_t count, float* sums) const {
        const Group<BITS>* of_panel = groups + panel * (inputs / GROUP);
        Tile<T>* to = tiles()[part].data();
        const auto expanded = [to](int64_t g) -> const Tile<T>& { return to[g]; };
        const auto expand_now = [to, of_panel](int64_t g) -> const Tile<T>& {
            expand(of_panel[g], to[g % 2]);
            return to[g % 2];
        };
        if (at_once) Product::multiply(x + first * inputs, count, inputs, expand_now, sums);
        else Product::multiply(x + first * inputs, count, inputs, expanded, sums);
    }

private:
    const Group<BITS>* groups;
    const X* x;
    int64_t inputs;
    bool at_once;

    static std::vector<Tile<T>>* tiles() {
        static thread_local std::vector<Tile<T>> of_parts[2];
        return of_parts;
    }
};
