package oncebox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// answering is a broker that does not answer for one topic, and cannot know of another.
type answering struct {
	*memory.Broker
}

func (b answering) Unused(ctx context.Context, topic string) (bool, error) {
	switch topic {
	case "silent":
		return false, errors.New("no answer")
	case "unknown":
		return false, errors.ErrUnsupported
	}
	return b.Broker.Unused(ctx, topic)
}

// A consumer of a topic to which nobody publishes looks like one that has nothing to do. The log says so once, however many consumers the topic has.
func TestATopicToWhichNobodyPublishesIsLogged(t *testing.T) {
	var log logbook.Book
	cfg := apptest.Config()
	cfg.Telemetry.Logger = log.Logger()
	cfg.UoW.TopicPrefix = "blue."
	b := answering{memory.New(nil)}
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{{ID: "1", Topic: "blue.order", Payload: []byte("{}")}}))
	app, err := oncebox.New(pgtest.Migrated(t).DB, b, cfg)
	require.NoError(t, err)
	oncebox.SetUnusedAfter(app, 0)
	nothing := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil })
	app.Consume("ticket", "a", nothing)
	app.Consume("ticket", "b", nothing)
	app.Consume("order", "a", nothing)
	app.Consume("/unknown", "a", nothing)
	app.Consume("/silent", "a", nothing) // the last one that is asked for
	stop := apptest.Run(t, app)
	await.True(t, func() bool { return log.Count("does not report whether anybody publishes") == 1 }, "%s", &log)
	stop()
	require.Equal(t, 1, log.Count("nobody has published to this topic yet"), log.String())
	require.Contains(t, log.String(), "topic=blue.ticket")
}
