package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/delayed"
)

// Actions on one event or message that waits.
const (
	decideRetry  = "retry"
	decideGiveUp = "give-up"
	decideCancel = "cancel"
	decideMove   = "move"
)

// decision is an action on one message that is tried again, or on one delayed event, with its texts.
type decision struct {
	Name, Title, Explained, Done string
	// Box is the box that the action belongs to.
	Box ops.Box
	// Page is the list that offers the action.
	Page string
	// Deletes is true for an action that cannot be undone. NeedsTime is true if the form asks for a time.
	Deletes, NeedsTime bool

	do func(v *visit, r ref, at time.Time, reason string) error
}

// decisionOf returns the decision with this name, or an error if there is none.
func decisionOf(action string) (*decision, error) {
	switch action {
	case decideRetry:
		return &decision{
			Name: action, Title: "Retry now", Done: "The message is tried now.", Box: ops.BoxInbox, Page: pageStuck,
			Explained: "The message is handled at once, and not only when its pause is over. What waits behind it under its key follows.",
			do: func(v *visit, r ref, _ time.Time, reason string) error {
				return v.cfg.Inbox.Parked().RetryNow(v.Context(), r.Message(), v.by(reason))
			},
		}, nil
	case decideGiveUp:
		return &decision{
			Name: action, Title: "Give up", Done: "The message is a dead letter.", Box: ops.BoxInbox, Page: pageStuck,
			Explained: "The message becomes a dead letter at once. It can be replayed later, edited or discarded; " +
				"what waits behind it under its key waits for that, unless the consumer goes on after dead letters.",
			do: func(v *visit, r ref, _ time.Time, reason string) error {
				return v.cfg.Inbox.Parked().GiveUp(v.Context(), r.Message(), v.by(reason))
			},
		}, nil
	case decideCancel:
		return &decision{
			Name: action, Title: "Cancel", Done: "The event was cancelled.", Box: ops.BoxOutbox, Page: pageDelayed, Deletes: true,
			Explained: "The event is deleted for good before its time: nobody will ever get it.",
			do: func(v *visit, r ref, _ time.Time, reason string) error {
				ctx := event.WithTenant(v.Context(), r.Tenant)
				return v.cfg.Outbox.Delayed().CancelByHand(ctx, r.ID, v.by(reason))
			},
		}, nil
	case decideMove:
		return &decision{
			Name: action, Title: "Move", Done: "The event was moved.", Box: ops.BoxOutbox, Page: pageDelayed, NeedsTime: true,
			Explained: "The event leaves at another time. A time that is over means: now.",
			do: func(v *visit, r ref, at time.Time, reason string) error {
				ctx := event.WithTenant(v.Context(), r.Tenant)
				return v.cfg.Outbox.Delayed().RescheduleByHand(ctx, r.ID, at, v.by(reason))
			},
		}, nil
	default:
		return nil, fmt.Errorf("action: %q is none of retry, give-up, cancel and move", action)
	}
}

// decide returns the address of the page that asks for the reason of a decision.
func (r ref) decide(action string) string {
	return "decide?" + url.Values{fieldAction: {action}, "ref": {r.String()}}.Encode()
}

// decideView is the data of the page that asks for the reason of a decision.
type decideView struct {
	Decision *decision
	Ref      ref
	To       string // the new time, as the form's field contains it
	Reason   string
	// Wrong is what is missing in the form, "" when it is first shown.
	Wrong string
}

// Event returns the address of the page about the event.
func (d *decideView) Event() string { return frame.Event(d.Ref.ID, d.Ref.Source) }

func decideViewOf(c *Console, q url.Values) (*decideView, error) {
	d, err := decisionOf(q.Get(fieldAction))
	if err != nil {
		return nil, invalid(err)
	}
	refs, err := refsOf(c, q)
	if err == nil && (len(refs) != 1 || refs[0].Box != d.Box) {
		err = fmt.Errorf("ref: %s needs one ref of the %s", d.Name, d.Box)
	}
	if err != nil {
		return nil, invalid(err)
	}
	return &decideView{Decision: d, Ref: refs[0], To: q.Get("to"), Reason: strings.TrimSpace(q.Get(fieldReason))}, nil
}

// askWhy shows the event or message that is about to be changed, and asks for the reason.
func askWhy(v *visit) error {
	view, err := decideViewOf(v.Console, v.URL.Query())
	if err != nil {
		return err
	}
	if view.Decision.NeedsTime && view.To == "" {
		view.To = words.Field(v.now.Add(time.Hour))
	}
	return v.show("decide", view.Decision.Title, view)
}

// decide carries out the confirmed decision.
func decide(v *visit) error {
	view, err := decideViewOf(v.Console, v.PostForm)
	if err != nil {
		return err
	}
	d := view.Decision
	var at time.Time
	if d.NeedsTime {
		if at, err = ops.TimeAhead(view.To, v.now); err != nil || at.IsZero() {
			view.Wrong = "Say when, in UTC: " + ops.TimeForms + " from now."
		}
	}
	if wrong := reasonProblem(view.Reason); wrong != "" {
		view.Wrong = wrong
	}
	if view.Wrong != "" {
		return v.write(http.StatusUnprocessableEntity, "decide", v.page(d.Title, view))
	}
	// Both refusals are races, for example with another operator or with the relay. Nothing was changed, so the actor may look again and decide anew.
	switch err := d.do(v, view.Ref, at, view.Reason); {
	case errors.Is(err, parked.ErrNotParked):
		return &problem{
			http.StatusConflict, "The message does not wait any more, or is not the first of its key",
			"Nothing was changed. It may have been handled meanwhile: the page of the event shows its whole life.",
		}
	case errors.Is(err, delayed.ErrTooLate):
		return &problem{
			http.StatusConflict, "The event does not wait any more, or has an ordering key",
			"Nothing was changed. Its time has come, or it was cancelled: the page of the event shows its whole life.",
		}
	case err != nil:
		return err
	}
	v.log.InfoContext(v.Context(), "oncebox: something that waits was treated on the console", "actor", v.access.Actor, "action", d.Name,
		"id", view.Ref.ID, "tenant", view.Ref.Tenant, "consumer", view.Ref.Consumer)
	v.redirect(d.Page + "?" + url.Values{fieldDone: {d.Name}}.Encode())
	return nil
}

// decided returns the sentence that reports what was decided on the page before.
func decided(q url.Values) string {
	d, err := decisionOf(q.Get(fieldDone))
	if err != nil {
		return ""
	}
	return d.Done
}
