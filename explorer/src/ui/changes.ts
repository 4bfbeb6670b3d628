/** Which tokens of a translation are not in the untouched one. */

/** For each item of two lists, whether it is outside of one longest common subsequence: what is left of both is the same. */
export function markBoth<T>(before: readonly T[], after: readonly T[]): { before: boolean[]; after: boolean[] } {
  const rows = before.length + 1;
  const columns = after.length + 1;
  const common = new Uint16Array(rows * columns);
  for (let row = before.length - 1; row >= 0; row--) {
    for (let column = after.length - 1; column >= 0; column--) {
      common[row * columns + column] =
        before[row] === after[column]
          ? common[(row + 1) * columns + column + 1]! + 1
          : Math.max(common[(row + 1) * columns + column]!, common[row * columns + column + 1]!);
    }
  }
  const changed = { before: before.map(() => true), after: after.map(() => true) };
  for (let row = 0, column = 0; row < before.length && column < after.length; ) {
    if (before[row] === after[column]) {
      changed.before[row] = changed.after[column] = false;
      row++;
      column++;
    } else if (common[(row + 1) * columns + column]! >= common[row * columns + column + 1]!) row++;
    else column++;
  }
  return changed;
}

/** Which items of `after` are not kept from `before`. */
export function markChanges<T>(before: readonly T[], after: readonly T[]): boolean[] {
  return markBoth(before, after).after;
}
