/** What every model of a page says of itself, whether it runs there or was recorded. */

import type { ControlName, ModelConfig, Side } from "./api";

/** What the data of both kinds of models have in common. */
export interface Description {
  id: string;
  label: string;
  task: string;
  config: ModelConfig;
  applicable: Record<Side, ControlName[]>;
}

/** The part of `PositionedModel` that is as Python wrote it. */
export abstract class DescribedModel<Data extends Description> {
  constructor(readonly data: Data) {}

  get id(): string {
    return this.data.id;
  }
  get label(): string {
    return this.data.label;
  }
  get task(): string {
    return this.data.task;
  }
  get config(): ModelConfig {
    return this.data.config;
  }
  get applicable(): Record<Side, readonly ControlName[]> {
    return this.data.applicable;
  }
}
