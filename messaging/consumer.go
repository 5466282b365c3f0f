package messaging

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// lastMoment is how long handlers may take to return after their context was cancelled.
const lastMoment = time.Second

// Consumer receives the messages of one [Receiver] and calls a [Handler] for each. Messages of different keys are handled at the same time, messages
// of one key strictly one after the other: the next one waits until the one before it is settled. The consumer acknowledges settled messages only.
// With ConsumerConfig.BatchSize a [BatchHandler] gets messages of several keys in one call, and several messages of one key in their order.
//
// A consumer runs once. When its receiver fails, subscribe again and make a new consumer.
type Consumer struct {
	receiver  Receiver
	handler   Handler
	cfg       ConsumerConfig
	telemetry *instruments
	batchers  *batchers // nil if messages are handled one by one

	queue   chan struct{} // has one token for each message in this process
	slots   chan struct{} // has one token for each running handler
	idle    chan keyed    // gives a key to a worker that has nothing to do
	resting chan struct{} // has one token for each worker that has nothing to do
	working sync.WaitGroup

	// Run sets these fields before it starts the workers.
	handling context.Context         //nolint:containedctx // what handlers run under; it outlives Run's own by the drain
	stopped  <-chan struct{}         // closed when no further handler may be started
	stop     context.CancelCauseFunc // cancels the run; the first cause is the error of Run

	mu           sync.Mutex
	keys         map[string][]*Message // for each key in work, the messages that wait behind the present one
	blocked      blocked
	unsettled    int
	lastProgress time.Time
	paused       bool
	resumed      chan struct{} // closed by the end of the pause; nil while the consumer is not paused
	standstill   standstill
}

// Progress is how far a [Consumer] has got with its messages.
type Progress struct {
	// Unsettled is the number of messages that were received and are not settled yet.
	Unsettled int
	// Last is when a message was last settled. If no message was settled yet, it is when the oldest unsettled message was received. Zero
	// before the first message.
	Last time.Time
	// Backlog is how many messages waited at the broker when it last answered. Standstill is how long they had waited, at that time, while no
	// consumer settled a message. Both are zero if the receiver is not a [BacklogReceiver] or the broker did not answer.
	Backlog    int64
	Standstill time.Duration
	// Left is how many further messages were left at the broker, because they could be neither handled nor stored, see [LeaveAtBroker].
	Left int64
}

// Stalled reports whether messages have waited, in this process or at the broker, for longer than limit without one being settled.
func (p Progress) Stalled(limit time.Duration) bool {
	return p.Unsettled > 0 && time.Since(p.Last) > limit || p.Standstill > limit
}

// NewConsumer returns a consumer that calls h for the messages of r. The consumer closes r when it ends.
func NewConsumer(r Receiver, h Handler, cfg *ConsumerConfig) *Consumer {
	c := cfg.WithDefaults()
	return &Consumer{
		receiver: r, handler: h, cfg: c, telemetry: newInstruments(&c), batchers: newBatchers(h, &c),
		queue: make(chan struct{}, max(c.Queue, 1)), slots: make(chan struct{}, max(c.Concurrency, 1)),
		idle: make(chan keyed), resting: make(chan struct{}, max(c.Concurrency, 1)),
		keys: map[string][]*Message{}, blocked: newBlocked(max(c.Queue, 1)),
	}
}

// Run consumes until ctx is done, and then drains: it receives no further message and starts no further handler. Running handlers may take
// DrainTimeout to end, and their messages are acknowledged; their context is not cancelled with ctx. All other messages go back to the broker when
// the receiver is closed. The result is nil if every handler ended in time.
//
// Any other error is the reason why the consumer ended by itself: the receiver failed, or did not take an acknowledgement. The consumer was drained
// and the receiver closed in this case, too.
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
	if paused == c.paused {
		return
	}
	c.paused, c.standstill.since = paused, time.Time{}
	if paused {
		c.resumed = make(chan struct{})
		c.receiver.Pause()
		return
	}
	close(c.resumed)
	c.resumed = nil
	c.receiver.Resume()
	// The messages in hand had to wait, so their standstill counts from now on.
	c.progressed()
}

// progressed notes that messages which are in hand are not late yet. The caller holds the mutex.
func (c *Consumer) progressed() {
	if c.unsettled > 0 {
		c.lastProgress = time.Now()
	}
}

// pauseEnds returns a channel that is closed when the present pause ends. It returns nil if the consumer is not paused.
func (c *Consumer) pauseEnds() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resumed
}

// receive takes messages from the receiver while the queue has room, and returns why it ended.
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

// drain waits until the running handlers have returned.
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
