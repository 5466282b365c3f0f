package pulsar

import (
	"fmt"
	"log/slog"
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// stranger is a producer of a program that does not use oncebox.
func stranger(t *testing.T, cfg *Config, options pulsarclient.ProducerOptions) pulsarclient.Producer {
	t.Helper()
	client, err := pulsarclient.NewClient(pulsarclient.ClientOptions{URL: cfg.URL, Logger: plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	options.SendTimeout = -1 // the goroutine that watches it outlives the producer
	options.Topic = fmt.Sprintf("persistent://%s/%s/%s", cfg.Tenant, cfg.Namespace, options.Topic)
	p, err := client.CreateProducer(options)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// sendAll sends messages and waits for their receipts.
func sendAll(t *testing.T, p pulsarclient.Producer, msgs ...*pulsarclient.ProducerMessage) {
	t.Helper()
	failed := make(chan error, len(msgs))
	for _, m := range msgs {
		p.SendAsync(t.Context(), m, func(_ pulsarclient.MessageID, _ *pulsarclient.ProducerMessage, err error) { failed <- err })
	}
	require.NoError(t, p.FlushWithCtx(patient(t)))
	for range msgs {
		require.NoError(t, <-failed)
	}
}

// dead are the ids of the dead letters.
func (e *effects) dead() (ids []string) {
	e.t.Helper()
	require.NoError(e.t, e.db.NewRaw("SELECT message_id FROM inbox_dead ORDER BY seq").Scan(e.t.Context(), &ids))
	return ids
}

// letters are the dead letters, with their payloads.
func (e *effects) letters() []inbox.DeadLetter {
	e.t.Helper()
	box := inbox.New(uow.New(e.db.DB, nil), nil)
	list, err := box.Dead().List(e.t.Context(), operator.DeadFilter{}, nil, 1000)
	require.NoError(e.t, err)
	for n, d := range list {
		list[n], err = box.Dead().Show(e.t.Context(), d.Key)
		require.NoError(e.t, err)
	}
	return list
}
