package oncebox_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/outbox"
)

// keeping is a broker that keeps its messages for a while.
type keeping struct {
	*memory.Broker

	answered chan struct{}
	keeps    map[string]time.Duration
}

func (k keeping) Retention(_ context.Context, topic string) (time.Duration, error) {
	defer func() { k.answered <- struct{}{} }()
	if d, ok := k.keeps[topic]; ok {
		return d, nil
	}
	return 0, errors.New("no such topic")
}

func TestRetentionsThatDoNotFitAreSaid(t *testing.T) {
	const warning, days = "can be replayed after the inbox has forgotten them", 24 * time.Hour
	for name, c := range map[string]struct {
		inbox, outbox time.Duration
		keeps         map[string]time.Duration
		want          int
	}{
		"defaults":           {keeps: map[string]time.Duration{"order": 0, "stock": 9 * days}},
		"outbox keeps more":  {outbox: 11 * days, keeps: map[string]time.Duration{"order": 0, "stock": 0}, want: 1},
		"outbox for ever":    {outbox: outbox.KeepForever, keeps: map[string]time.Duration{"order": 0, "stock": 0}, want: 1},
		"topics keep more":   {inbox: 2 * days, outbox: days, keeps: map[string]time.Duration{"order": 3 * days, "stock": -1}, want: 2},
		"inbox for ever":     {inbox: inbox.KeepForever, outbox: outbox.KeepForever},
		"nobody knows topic": {want: 0, keeps: map[string]time.Duration{}},
	} {
		t.Run(name, func(t *testing.T) {
			var log logbook.Book
			cfg := apptest.Config()
			cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(&log, nil))
			cfg.Inbox.Retention, cfg.Outbox.Retention = c.inbox, c.outbox
			b := keeping{memory.New(nil), make(chan struct{}), c.keeps}
			app, err := oncebox.New(pgtest.Migrated(t).DB, b, cfg)
			require.NoError(t, err)
			nothing := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil })
			app.Consume("order", "a", nothing)
			app.Consume("order", "b", nothing)
			app.Consume("stock", "a", nothing)
			stop := apptest.Run(t, app)
			if c.keeps != nil {
				<-b.answered
				<-b.answered
			}
			stop()
			require.Equal(t, c.want, log.Count(warning), log.String())
		})
	}
}
