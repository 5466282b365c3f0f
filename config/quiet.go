package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/oncebox/oncebox/internal/quietlog"
)

// Quiet returns a logger that keeps what fails again and again to a line each interval. The first line of a failure is written at once; then one each
// interval, the latest, with how many there were and since when; and one at INFO when it has not been seen for a while. Failures are one if they have
// one cause: of a consumer, of a route, or, if database or broker are away, of the whole process. docs/logs.md has the details.
//
// Every package does so with its Logger by itself, with an interval of a minute. Give it a logger of Quiet to have another interval, or to have parts
// that are used without oncebox.App count together. A logger that is of Quiet already is returned as it is.
//
// l nil: slog.Default(). interval 0: 1m; -1: every failure is a line.
func Quiet(l *slog.Logger, interval time.Duration) *slog.Logger {
	return quietlog.New(l, interval)
}

func (c *Config) validateLog() error {
	if c.LogInterval == 0 || c.LogInterval == quietlog.Off || c.LogInterval >= time.Second {
		return nil
	}
	return fmt.Errorf("config: Config.LogInterval is %s: give 1s or more, or -1 for every failure", c.LogInterval)
}
