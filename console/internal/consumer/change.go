package consumer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/operator"
)

// Change pauses, resumes or forgets a consumer.
type Change struct {
	action operator.Action
	name   string
	limit  time.Duration
}

// NewChange makes a change from the fields of a form. length is how long a pause lasts, such as 2h; "" for a pause without an end. It returns an error if
// a field cannot be used.
func NewChange(action operator.Action, name, length string) (*Change, error) {
	c := &Change{action: action, name: strings.TrimSpace(name)}
	if c.name == "" {
		return nil, errors.New("consumer: it is empty")
	}
	if Done(action) == "" {
		return nil, fmt.Errorf("action: %q is none of pause, resume and forget", action)
	}
	length = strings.TrimSpace(length)
	if action != operator.Pause || length == "" {
		return c, nil
	}
	var err error
	if c.limit, err = time.ParseDuration(length); err != nil || c.limit <= 0 {
		return nil, fmt.Errorf("for: %q is not a duration above 0, such as 2h or 30m", length)
	}
	return c, nil
}

// Do makes the change. [Refusal] explains its error.
func (c *Change) Do(ctx context.Context, all *consumers.Consumers, by operator.By) error {
	switch c.action {
	case operator.Pause:
		return all.Pause(ctx, c.name, c.limit, by)
	case operator.Resume:
		return all.Resume(ctx, c.name, by)
	default:
		return all.Forget(ctx, c.name, by)
	}
}

// Next returns the address of the page that follows: that of the consumer with the name back, or the list. list is the address of the list, and done the field
// that names the action. A consumer that is forgotten has no page.
func (c *Change) Next(list, back, done string) string {
	fields := url.Values{done: {string(c.action)}}
	if back == "" || c.action == operator.Forget {
		return frame.Address(list, fields)
	}
	fields.Set(Field, back)
	return frame.Address(Page, fields)
}

// Done returns the notice after an action on a consumer, "" for any other action.
func Done(action operator.Action) string {
	return map[operator.Action]string{
		operator.Pause:  "The consumer is paused. Handlers that run end; all processes notice it within about a second.",
		operator.Resume: "The consumer is resumed. Its messages are handled in their order.",
		operator.Forget: "The consumer is forgotten. Its subscription at the broker stays until it is removed there.",
	}[action]
}

// Refusal returns why a consumer is not in a state for the change: another operator or a process was faster. "" for any other error, and for nil.
func Refusal(err error) string {
	switch {
	case errors.Is(err, consumers.ErrPaused):
		return "The consumer is paused already"
	case errors.Is(err, consumers.ErrNotPaused):
		return "The consumer is not paused"
	case errors.Is(err, consumers.ErrUnknown):
		return "There is no such consumer"
	case errors.Is(err, consumers.ErrRuns):
		return "A process runs the consumer: stop it first"
	default:
		return ""
	}
}
