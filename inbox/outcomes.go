package inbox

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/inbox/internal/store"
)

// The outcomes of a message that oncebox.inbox.messages counts.
const (
	outcomeHandled     = "handled"
	outcomeSkipped     = "skipped"
	outcomeDuplicate   = "duplicate"
	outcomeParked      = "parked"
	outcomeFailed      = "failed"
	outcomeDead        = "dead"
	outcomeInterrupted = "interrupted"
	outcomeLeased      = "leased"
	outcomeLocked      = "locked"
)

// countFromZero reports the counters of a consumer as 0 before anything is counted, see otelx.Started.
func (i *Inbox) countFromZero(consumer string) {
	for _, outcome := range []string{
		outcomeHandled, outcomeSkipped, outcomeDuplicate, outcomeParked, outcomeFailed, outcomeDead, outcomeInterrupted, outcomeLeased, outcomeLocked,
	} {
		i.countN(context.Background(), consumer, outcome, 0)
	}
	if i.cfg.OnDead != nil {
		i.silent.Add(context.Background(), 0, ofConsumer(consumer))
	}
}

func ofConsumer(consumer string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("consumer", store.Family(consumer)))
}
