// Package measure has the metrics of a projector: [Instruments] measure what it does, and [Gauges] show what waits in its
// outboxes.
//
// Each metric is recorded in one place of package projector, through which every row passes, so that no way by which an
// event leaves is forgotten: publications in publisher.handOver, what became of rows in settler and queues.
//
// Read first: instruments.go: [Instruments.Took], then gauges.go: [Gauges.Show].
package measure
