//go:build unix && nightly

package endurance

import (
	"context"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// consumer is one in this process, for what can be seen without killing it.
type consumer struct {
	handler messaging.Handler
	stop    func()
}

// consume makes h handle the messages of the site until the test ends, or before.
func (s *site) consume(box *inbox.Inbox, h messaging.Handler) *consumer {
	s.t.Helper()
	c := &consumer{handler: box.Wrap(consumerName, h)}
	receiver, err := s.broker.Subscribe(s.t.Context(), messaging.Subscription{Topic: s.topic, Name: consumerName})
	require.NoError(s.t, err)
	consuming := messaging.NewConsumer(receiver, c.handler, &messaging.ConsumerConfig{Name: consumerName, Telemetry: telemetry.Config{Logger: quiet()}})
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var working sync.WaitGroup
	for _, run := range []func(context.Context) error{consuming.Run, box.RunParked} {
		working.Go(func() {
			if err := run(ctx); err != nil {
				s.t.Errorf("consume: %v", err)
			}
		})
	}
	c.stop = sync.OnceFunc(func() {
		cancel()
		working.Wait()
	})
	s.t.Cleanup(c.stop)
	return c
}

// leaveQuietly writes one row, whatever the message's mood is.
func leaveQuietly(ctx context.Context, s *site, m *messaging.Message) error {
	_, err := s.units.DB(ctx).NewRaw("INSERT INTO effects (key, n, process) VALUES (?, ?, 'test')", m.AggregateID, m.AggregateVersion).Exec(ctx)
	return err
}
