import { describe, expect, it } from "vitest";
import { chooseHands, compareToTable, encodePosition, interpolateRow, shortAngle, turnHand, turnTable } from "../../src/ui/clock";
import { tellPosition } from "../../src/ui/clockwork";

const FREQUENCIES = Array.from({ length: 8 }, (_, hand) => 10_000 ** (-hand / 8));
const SETTINGS = { frequencies: FREQUENCIES, sineOnly: false, loudness: 1 };

describe("the clock", () => {
  it("turns hands to where sine and cosine have them, over 512 positions", () => {
    const table = turnTable(512, 3, SETTINGS);
    for (const row of [0, 1, 100, 511]) {
      FREQUENCIES.forEach((frequency, hand) => {
        expect(table.values[row * 16 + 2 * hand]).toBeCloseTo(Math.sin((row + 3) * frequency), 6);
        expect(table.values[row * 16 + 2 * hand + 1]).toBeCloseTo(Math.cos((row + 3) * frequency), 6);
      });
    }
  });

  it("encodes a position as the table does, and those between rows", () => {
    const table = turnTable(8, 0, { ...SETTINGS, loudness: 2, sineOnly: true });
    const row = encodePosition(5, { ...SETTINGS, loudness: 2, sineOnly: true });
    row.forEach((value, column) => expect(value).toBeCloseTo(table.values[5 * 16 + column]!, 5));
    expect(encodePosition(2.5, SETTINGS)[0]).toBeCloseTo(Math.sin(2.5), 6);
  });

  it("finds positions as alike as the mean cosine of their distance on each hand", () => {
    const alike = compareToTable(encodePosition(4.5, SETTINGS), turnTable(20, 0, SETTINGS));
    alike.forEach((value, position) => {
      const mean = FREQUENCIES.reduce((sum, frequency) => sum + Math.cos(frequency * (position - 4.5)), 0) / 8;
      expect(value).toBeCloseTo(mean, 5);
    });
  });

  it("calls nothing alike to a vector of length 0", () => {
    const silent = { ...SETTINGS, loudness: 0 };
    expect([...compareToTable(encodePosition(1, silent), turnTable(3, 0, silent))]).toEqual([0, 0, 0]);
  });

  it("draws a line between rows of a table, and holds its ends", () => {
    const table = { rows: 2, columns: 1, values: Float32Array.of(1, 3) };
    expect(interpolateRow(table, 0.5)[0]).toBe(2);
    expect(interpolateRow(table, 9)[0]).toBe(3);
    expect(interpolateRow(table, -1)[0]).toBe(1);
  });

  it("shows the first and the last of many hands", () => {
    expect(chooseHands(3, 8)).toEqual([0, 1, 2]);
    expect(chooseHands(256, 4)).toEqual([0, 85, 170, 255]);
  });

  it("turns a hand by an angle the short way, within the clock", () => {
    expect(turnHand(3, Math.PI, 0.5, 63)).toBeCloseTo(3 + 2 * Math.PI);
    expect(turnHand(3, -9, 0.5, 63)).toBe(0);
    expect(turnHand(3, 1, 1e-4, 63)).toBe(63);
    expect(turnHand(3, 1, 0, 63)).toBe(3);
    expect(shortAngle(3, -3)).toBeCloseTo(2 * Math.PI - 6);
    expect(shortAngle(0, 1)).toBeCloseTo(1);
  });

  it("names the far position that is most alike, where there is one", () => {
    const settings = { frequencies: [(2 * Math.PI) / 8], sineOnly: false, loudness: 3 };
    const clock = { settings, table: turnTable(20, 0, settings), turning: true };
    expect(tellPosition(clock, 3)).toBe("Among positions 5 or more steps away, 11 looks most like 3 (similarity 1).");
    const short = { ...clock, table: turnTable(4, 0, settings) };
    expect(tellPosition(short, 1)).toBe("");
  });
});
