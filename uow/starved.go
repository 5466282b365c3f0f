package uow

import (
	"context"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/quietlog"
)

const (
	// starvedAfter is how long a unit waits for a connection before that is logged.
	starvedAfter = 10 * time.Second
	// starvedInterval is how often that is logged at most, however many units wait.
	starvedInterval = time.Minute

	starvedAdvice = "Code that uses the pool within a unit of work takes a second one, and may wait for ever for others that do so too: " +
		"use the unit there (uow.FromContext), or allow more (SetMaxOpenConns)"
)

// starved tells that units wait for a connection. A context without a deadline would have them wait for ever without a word.
type starved struct {
	after time.Duration
	mu    sync.Mutex
	told  time.Time
}

// due tells whether it is to be logged now, and notes that it was.
func (s *starved) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.told.IsZero() && now.Sub(s.told) < starvedInterval {
		return false
	}
	s.told = now
	return true
}

// watch logs once if the unit that waits for a connection still does so later, and all are in use. The caller calls stop.
func (m *Manager) watch(ctx context.Context) (stop func() bool) {
	return time.AfterFunc(m.starved.after, func() {
		if most, all := m.allInUse(); all && m.starved.due(time.Now()) {
			ctx := quietlog.Away(ctx, quietlog.Database)
			m.log.WarnContext(ctx, "oncebox: a unit of work waits for a connection to the database, and all of the pool are in use. "+starvedAdvice,
				"connections", most, "waited", m.starved.after)
		}
	}).Stop
}

// allInUse tells how many connections the pool may have, and whether all of them are in use.
func (m *Manager) allInUse() (most int, all bool) {
	s := m.db.Stats()
	return s.MaxOpenConnections, s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}
