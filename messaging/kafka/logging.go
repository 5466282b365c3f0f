package kafka

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/quietlog"
)

// clientSays is the beginning of each log line of the client.
const clientSays = "Kafka's client: "

// clientLog passes the log of the client on. The client's info level, dozens of lines for each start, becomes debug. It never logs the content
// of messages. Its warnings while the broker is away count as one repeated failure.
type clientLog struct{ to *slog.Logger }

// Level implements [kgo.Logger].
func (l clientLog) Level() kgo.LogLevel {
	switch ctx := context.Background(); {
	case l.to.Enabled(ctx, slog.LevelDebug):
		return kgo.LogLevelInfo
	case l.to.Enabled(ctx, slog.LevelWarn):
		return kgo.LogLevelWarn
	default:
		return kgo.LogLevelError
	}
}

// Log implements [kgo.Logger].
func (l clientLog) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := slog.LevelDebug
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelError
	case kgo.LogLevelWarn:
		to = slog.LevelWarn
	case kgo.LogLevelInfo, kgo.LogLevelDebug, kgo.LogLevelNone:
	}
	l.to.Log(quietlog.Away(context.Background(), quietlog.Broker+" for its client"), to, clientSays+msg, keyvals...)
}
