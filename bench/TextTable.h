//===- TextTable.h - Columns for people to read --------------- -*- C++ -*-===//
//
// Part of the context_pool project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONTEXT_POOL_BENCH_TEXTTABLE_H
#define CONTEXT_POOL_BENCH_TEXTTABLE_H

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ctxpool::bench {

/// Three digits or more, or two of a small one: `1234`, `12.3`, `0.12`, `0.0012`.
inline std::string formatNumber(double value) {
  // As many digits as it takes to see two of them, up to a millionth.
  int digits = 2;
  while (digits < 6 && value > 0 && value * std::pow(10, digits - 1) < 0.995)
    ++digits;
  if (value < 10) {
    std::string text;
    llvm::raw_string_ostream(text) << llvm::format("%.*f", digits, value);
    return text;
  }
  return value < 100 ? llvm::formatv("{0:F1}", value)
                     : llvm::formatv("{0:F0}", value);
}

/// `-` where there is nothing to answer.
inline std::string formatAnswer(std::optional<bool> answer) {
  if (!answer)
    return "-";
  return *answer ? "yes" : "NO";
}

/// The end of a path, which tells more than its beginning.
inline std::string shortenPath(llvm::StringRef path, size_t width = 48) {
  return path.size() > width ? "..." + path.take_back(width - 3).str()
                             : path.str();
}

/// Rows of cells in columns as wide as their widest cell. Cells are aligned to
/// the right but in the columns that `alignLeft` names, of which the first is
/// one.
class TextTable {
public:
  explicit TextTable(std::vector<size_t> alignLeft = {0})
      : leftColumns(std::move(alignLeft)) {}

  void addRow(std::vector<std::string> cells) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (auto [width, cell] : llvm::zip(widths, cells))
      width = std::max(width, cell.size());
    rows.push_back(std::move(cells));
  }

  /// A line under what was added so far.
  void addRule() { rows.emplace_back(); }

  void print(llvm::raw_ostream &stream) const {
    for (const std::vector<std::string> &row : rows) {
      std::string line;
      for (size_t column = 0; column < widths.size(); ++column) {
        std::string separator(column ? gap : 0, ' ');
        if (row.empty()) {
          line += std::string(separator.size() + widths[column], '-');
          continue;
        }
        llvm::StringRef cell =
            column < row.size() ? llvm::StringRef(row[column]) : "";
        std::string padding(widths[column] - cell.size(), ' ');
        bool left = llvm::is_contained(leftColumns, column);
        line += separator + (left ? "" : padding) + cell.str() +
                (left ? padding : "");
      }
      stream << llvm::StringRef(line).rtrim() << "\n";
    }
  }

private:
  static constexpr size_t gap = 2;
  std::vector<size_t> leftColumns;
  std::vector<size_t> widths;
  std::vector<std::vector<std::string>> rows;
};

} // namespace ctxpool::bench

#endif // CONTEXT_POOL_BENCH_TEXTTABLE_H
