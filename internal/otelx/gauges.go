package otelx

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Gauges show a state that is read from time to time.
//
// They are observed when metrics are collected. A gauge that is set would show its last value for ever: even in a process that no longer reads the
// state, and for a topic without rows.
type Gauges struct {
	meter metric.Meter
	all   []metric.Observable
}

// NewGauges returns an empty set. Counts and seconds are added before Show.
func NewGauges(m metric.Meter) *Gauges { return &Gauges{meter: m} }

// Count adds a gauge for a number.
func (g *Gauges) Count(name, description string) metric.Int64ObservableGauge {
	gauge, err := g.meter.Int64ObservableGauge(name, metric.WithDescription(description))
	if err != nil || gauge == nil {
		handle(err)
		// An idle gauge is returned and not added to the set, so that observing it does nothing.
		return noop.Int64ObservableGauge{}
	}
	g.all = append(g.all, gauge)
	return gauge
}

// Seconds adds a gauge for a duration.
func (g *Gauges) Seconds(name, description string) metric.Float64ObservableGauge {
	gauge, err := g.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
	if err != nil || gauge == nil {
		handle(err)
		return noop.Float64ObservableGauge{}
	}
	g.all = append(g.all, gauge)
	return gauge
}

// Show calls show at each collection, until end is called.
func (g *Gauges) Show(show metric.Callback) (end func()) {
	registration, err := g.meter.RegisterCallback(show, g.all...)
	if err != nil || registration == nil {
		handle(err)
		return func() {}
	}
	return func() { handle(registration.Unregister()) }
}

// handle reports an error of the metrics to OpenTelemetry's own handler. The work goes on.
func handle(err error) {
	if err != nil {
		otel.Handle(err)
	}
}

// Other is the topic and tenant of the series that stands for all pairs beyond MaxSeries.
const Other = "other"

// MaxSeries is the largest number of pairs of topic and tenant for which a metric has its own series in one process.
// There may be many tenants.
const MaxSeries = 50

// TopicAndTenant returns the attributes of a series.
func TopicAndTenant(topic, tenant string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("topic", topic), attribute.String("tenant", tenant))
}
