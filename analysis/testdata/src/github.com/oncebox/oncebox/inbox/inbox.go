// Package inbox stands for the real one.
package inbox

import (
	"context"

	"github.com/oncebox/oncebox/messaging"
)

type Inbox struct{}

type Option func()

func Leased() Option { return nil }

func (*Inbox) Consume(topic, name string, h messaging.Handler, opts ...Option) error { return nil }

func (*Inbox) ConsumeBatch(topic, name string, fn func(context.Context, []*messaging.Message) error) error {
	return nil
}
