// Package measure has the metrics of a projector: [Instruments] measure what it does, and [Gauges] show what waits in its
// outboxes.
//
// Each metric is recorded in one place of package projector, and every row passes this place. So no publication is missing in a metric.
// Publications are recorded in publisher.handOver, and the outcomes of rows in settler and queues.
//
// Read first: instruments.go: [Instruments.Took], then gauges.go: [Gauges.Show].
package measure
