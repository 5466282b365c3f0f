package process

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// lastBeat returns how many seconds ago a process last ran RunParked for a consumer; no row: never.
const lastBeat = `SELECT extract(epoch FROM clock_timestamp() - beat_at)::float8 FROM {schema}.inbox_consumer WHERE consumer = $1::text AND beat_at IS NOT NULL`

const (
	// unattendedAfter is how long ago that may be. Processes that run RunParked note it every minute.
	unattendedAfter = 3 * time.Minute
	// askedEvery is how often a process reads lastBeat, for each consumer whose messages it parks.
	askedEvery = time.Minute
)

// WarnIfUnattended logs an error if messages are parked and no process handles them: inbox.Inbox.RunParked runs nowhere, so these messages, and
// all messages that are parked behind them, wait for ever.
func (c *Consumers) WarnIfUnattended(ctx context.Context, consumer string) {
	if !c.askAgain(consumer) {
		return
	}
	var since float64
	err := c.h.SQL.QueryRow(ctx, c.h.DB(ctx), lastBeat, []any{consumer}, &since)
	last := time.Duration(since * float64(time.Second))
	// No row means that the consumer never ran RunParked anywhere, so the messages wait for ever.
	switch {
	case errors.Is(err, sql.ErrNoRows):
		c.h.Log.ErrorContext(ctx, "oncebox: messages are parked, but no process handles parked messages of this consumer, so they wait for ever. Call "+
			"Inbox.Run (or Inbox.RunParked beside a consumer of your own) in a process that has this consumer", "consumer", consumer)
	case err == nil && last > unattendedAfter:
		c.h.Log.ErrorContext(ctx, "oncebox: messages are parked, but no process has handled parked messages of this consumer for a while. Call "+
			"Inbox.Run (or Inbox.RunParked beside a consumer of your own) in a process that has this consumer", "consumer", consumer, "last", last)
	}
}

// askAgain reports whether it is time to read lastBeat of a consumer.
func (c *Consumers) askAgain(consumer string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, asked := c.asked[consumer]; asked && time.Since(last) < askedEvery {
		return false
	}
	c.asked[consumer] = time.Now()
	return true
}
