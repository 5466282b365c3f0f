package messaging

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// lastMoment is what handlers get to come back after their context was cancelled.
const lastMoment = time.Second

// Consumer receives the messages of one [Receiver] and has a [Handler] handle them: different keys at once, the
// messages of one key strictly one after the other, each until it is settled. It acknowledges what was settled, and
// nothing else. With ConsumerConfig.BatchSize a [BatchHandler] gets messages of different keys, and several of one key in
// their order, in one call. A consumer runs once; when its receiver dies, subscribe again and make a new one.
type Consumer struct {
	receiver  Receiver
	handler   Handler
	cfg       ConsumerConfig
	telemetry *instruments
	batchers  *batchers // nil: one by one

	queue   chan struct{} // a token per message in this process
	slots   chan struct{} // a token per running handler
	idle    chan keyed    // to workers that have nothing to do
	resting chan struct{} // a token for each of them
	working sync.WaitGroup

	// Set by Run, for the workers.
	handling context.Context         //nolint:containedctx // what handlers run under; it outlives Run's own by the drain
	stopped  <-chan struct{}         // closed when no handler may be started any more
	stop     context.CancelCauseFunc // the first cause wins

	mu           sync.Mutex
	keys         map[string][]*Message // the keys that are being worked on, and what waits behind each
	blocked      blocked
	unsettled    int
	lastProgress time.Time
	paused       bool
	standstill   standstill
}

// Progress is how far a [Consumer] has come.
type Progress struct {
	// Unsettled is how many messages were received and are not settled yet.
	Unsettled int
	// Last is when a message was settled last, or when the oldest unsettled one was received if nothing was unsettled
	// before it. Zero before the first message.
	Last time.Time
	// Backlog is how many messages waited at the broker when it was last asked, and Standstill how long, at that time, messages had waited
	// without any consumer settling one. Both are zero if the receiver is not a [BacklogReceiver] or the broker did not answer.
	Backlog    int64
	Standstill time.Duration
	// Left is how many messages besides these were left at the broker, because they could be neither handled nor stored.
	Left int64
}

// Stalled reports whether there was work all the time, here or at the broker, and none of it got done for longer than limit.
func (p Progress) Stalled(limit time.Duration) bool {
	return p.Unsettled > 0 && time.Since(p.Last) > limit || p.Standstill > limit
}

// NewConsumer returns a consumer of r, whose messages h handles. The consumer closes r when it ends.
func NewConsumer(r Receiver, h Handler, cfg *ConsumerConfig) *Consumer {
	c := cfg.WithDefaults()
	return &Consumer{
		receiver: r, handler: h, cfg: c, telemetry: newInstruments(&c), batchers: newBatchers(h, &c),
		queue: make(chan struct{}, max(c.Queue, 1)), slots: make(chan struct{}, max(c.Concurrency, 1)),
		idle: make(chan keyed), resting: make(chan struct{}, max(c.Concurrency, 1)),
		keys: map[string][]*Message{}, blocked: newBlocked(max(c.Queue, 1)),
	}
}

// Run consumes until ctx is done, and then drains: no message is received and no handler is started any more. Running handlers may go on
// for DrainTimeout, and their messages are acknowledged. Closing the receiver hands back all other messages. The context of handlers is not
// cancelled with ctx. The result is nil if the drain went well.
//
// Any other error says why the consumer ended by itself: the receiver died or did not take an acknowledgement. It was
// drained and closed just the same.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.cfg.Validate(); err != nil {
		return errors.Join(err, c.receiver.Close())
	}
	receiving, stop := context.WithCancelCause(ctx)
	handling, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()

	c.handling, c.stopped, c.stop = handling, receiving.Done(), stop
	if c.batchers != nil {
		for _, in := range c.batchers.in {
			c.working.Go(func() { c.runBatcher(in) })
		}
	}
	var watching sync.WaitGroup
	if r, ok := c.receiver.(BacklogReceiver); ok && c.cfg.BacklogInterval > 0 {
		watching.Go(func() { c.watch(receiving, r) })
	}
	stop(c.receive(receiving))
	watching.Wait()

	errs := []error{c.drain(ctx, abandon), c.receiver.Close()}
	if ctx.Err() == nil {
		errs = append(errs, context.Cause(receiving))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("messaging: consumer %q: %w", c.cfg.Name, err)
	}
	return nil
}

// Progress returns how far the consumer has come.
func (c *Consumer) Progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Progress{
		Unsettled: c.unsettled, Last: c.lastProgress,
		Backlog: c.standstill.backlog.Messages, Standstill: c.standstill.lasted(), Left: c.standstill.backlog.Left,
	}
}

// setPaused stops the flow of messages, or starts it again: see [Loop.Pause].
func (c *Consumer) setPaused(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
	c.standstill.since = time.Time{}
	if paused {
		c.receiver.Pause()
	} else {
		c.receiver.Resume()
	}
}

// receive takes messages as long as there is room for them, and returns why it ended.
func (c *Consumer) receive(ctx context.Context) error {
	for {
		select {
		case c.queue <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		m, err := c.receiver.Receive(ctx)
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		c.accept(m)
	}
}

// drain waits for the handlers that run.
func (c *Consumer) drain(ctx context.Context, abandon context.CancelFunc) error {
	done := make(chan struct{})
	go func() {
		c.working.Wait()
		close(done)
	}()
	timer := time.NewTimer(max(c.cfg.DrainTimeout, 0))
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	c.telemetry.log.WarnContext(ctx, "oncebox: the consumer stops, and handlers have not returned within its drain timeout; their contexts are "+
		"cancelled", "consumer", c.cfg.Name, "timeout", c.cfg.DrainTimeout)
	abandon()
	timer.Reset(lastMoment)
	select {
	case <-done:
		return nil
	case <-timer.C:
		return errors.New("stop the consumer: handlers still run although their contexts were cancelled; the broker delivers their messages again")
	}
}
