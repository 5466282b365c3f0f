// Package logbook collects log lines, for tests that look for a line while others are written.
package logbook

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Book is a log in memory. The zero value is empty. It is safe for concurrent use.
type Book struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the log.
func (b *Book) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Logger returns a logger that writes to the book, from level INFO.
func (b *Book) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// String returns everything that was logged.
func (b *Book) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often a text was logged.
func (b *Book) Count(text string) int { return strings.Count(b.String(), text) }
