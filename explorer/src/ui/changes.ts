/** Which tokens of a translation are not in the untouched one. */

/** For each item of `after`, whether it belongs to no longest common subsequence with `before` (false: it is kept). */
export function markChanges<T>(before: readonly T[], after: readonly T[]): boolean[] {
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
  const changed = after.map(() => true);
  for (let row = 0, column = 0; row < before.length && column < after.length; ) {
    if (before[row] === after[column]) {
      changed[column] = false;
      row++;
      column++;
    } else if (common[(row + 1) * columns + column]! >= common[row * columns + column + 1]!) row++;
    else column++;
  }
  return changed;
}
