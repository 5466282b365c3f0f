package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/plot"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// fieldFor is the form field with the length of a pause.
const fieldFor = "for"

// consumersView is the data of the page of consumers.
type consumersView struct {
	Consumers []consumer.Row
	Notice    string
}

// showConsumers lists the consumers, with the actions that fit the state of each.
func showConsumers(v *visit) (err error) {
	view := &consumersView{Notice: consumer.Done(operator.Action(v.URL.Query().Get(fieldDone)))}
	if view.Consumers, err = consumer.ReadWhole(v.Context(), v.cfg.Outbox, v.cfg.Inbox); err != nil {
		return err
	}
	return v.show(pageConsumers, titleConsumers, view)
}

// consumerView is the data of the page of one consumer.
type consumerView struct {
	View   *consumer.View
	Spans  []tab
	Notice string
	Open   operator.Action // the form that is open, "" for none
}

// showConsumer shows all that is known of one consumer.
func showConsumer(v *visit) error {
	q := v.URL.Query()
	name, span := q.Get(consumer.Field), plot.SpanOf(q.Get(fieldSpan))
	all, archived, err := v.view().Causes(v.Context(), ops.Filter{Consumer: name})
	if err != nil {
		return err
	}
	view, err := consumer.ReadView(v.Context(), v.now, span, v.db, v.cfg.Outbox, v.cfg.Inbox, name, all, archived)
	if errors.Is(err, consumer.ErrUnknown) {
		return &problem{http.StatusNotFound, "There is no such consumer", "It was forgotten, or has another name. The page Consumers lists all."}
	}
	if err != nil {
		return err
	}
	shown := &consumerView{
		View: view, Spans: spansOf(consumer.Page, url.Values{consumer.Field: {name}}, span), Notice: consumer.Done(operator.Action(q.Get(fieldDone))),
	}
	if v.access.Act {
		shown.Open = operator.Action(q.Get(frame.FieldForm))
	}
	v.still = shown.Open != ""
	return v.show(consumer.Page, name, shown)
}

// changeConsumer pauses, resumes or forgets a consumer.
func changeConsumer(v *visit) error {
	form := v.PostForm
	action, name, reason := form.Get(fieldAction), form.Get(fieldConsumer), strings.TrimSpace(form.Get(fieldReason))
	change, err := consumer.NewChange(operator.Action(action), name, form.Get(fieldFor))
	if err != nil {
		return invalid(err)
	}
	if wrong := reasonProblem(reason); wrong != "" {
		return unexplained(wrong)
	}
	err = change.Do(v.Context(), v.cfg.Inbox.Consumers(), v.by(reason))
	if title := consumer.Refusal(err); title != "" {
		return &problem{http.StatusConflict, title, lookAgain}
	}
	if err != nil {
		return err
	}
	v.log.InfoContext(v.Context(), "oncebox: a consumer was paused, resumed or forgotten on the console", "actor", v.access.Actor,
		"action", action, "consumer", name)
	v.redirect(change.Next(pageConsumers, form.Get(fieldBack), fieldDone))
	return nil
}
