package otelx_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/telemetry"
)

func TestLaterFollowsWhoSaysWhereItGoes(t *testing.T) {
	type instruments struct{ meters metric.MeterProvider }
	made := 0
	later := func(own telemetry.Config) *otelx.Later[instruments] {
		return otelx.NewLater(own, func(to telemetry.Config) *instruments {
			made++
			return &instruments{to.MeterProvider}
		})
	}
	var first, second logbook.Book
	own, other := noop.NewMeterProvider(), noop.NewMeterProvider()

	l := later(telemetry.Config{})
	derived := l.Logger().With("part", "broker").WithGroup("g")
	require.Zero(t, made)
	require.Nil(t, l.Instruments().meters)
	l.Use(telemetry.Config{Logger: first.Logger(), MeterProvider: own})
	derived.Info("hello", "a", 1)
	require.Contains(t, first.String(), "msg=hello part=broker g.a=1")
	require.Equal(t, own, l.Instruments().meters)
	l.Instruments()
	require.Equal(t, 2, made, "they are kept")

	l.Use(telemetry.Config{Logger: second.Logger(), MeterProvider: other})
	l.Logger().Info("again")
	require.Contains(t, first.String(), "again", "it was said before")
	require.Empty(t, second.String())

	l = later(telemetry.Config{Logger: second.Logger()})
	l.Use(telemetry.Config{Logger: first.Logger(), MeterProvider: other})
	l.Logger().Info("mine")
	require.Contains(t, second.String(), "mine")
	require.Equal(t, other, l.Instruments().meters)
}
