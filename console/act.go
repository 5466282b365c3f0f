package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/console/internal/facts"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// Names of form fields.
const (
	fieldAction = "action"
	fieldReason = "reason"
	fieldBack   = "back"
)

// deadLetters names the things that most pages are about.
const deadLetters = "dead letters"

// maxReason is the longest reason that the audit stores, in bytes.
const maxReason = 2048

// letterAction is an action on dead letters, with its texts. The action Retry applies to messages that failed and are tried again; it is
// only for all messages of a selection.
type letterAction struct {
	Action                 operator.Action
	Title, Done, Explained string
	// Deletes is true for an action that cannot be undone.
	Deletes bool
}

// Thing and Things name what the action is applied to, in singular and plural.
func (d *letterAction) Thing() string {
	if d.Action == operator.Retry {
		return "message that failed"
	}
	return "dead letter"
}

func (d *letterAction) Things() string {
	if d.Action == operator.Retry {
		return "messages that failed"
	}
	return deadLetters
}

// letterActionOf returns the action with this name.
func letterActionOf(action string) (*letterAction, error) {
	switch operator.Action(action) {
	case operator.Replay:
		return &letterAction{
			Action: operator.Replay, Title: "Replay", Done: "replayed",
			Explained: "An event is published, and a message is handled, after all: before all others that wait under its key, " +
				"and with all its attempts. Mend the cause first, or it dies again.",
		}, nil
	case operator.Discard:
		return &letterAction{
			Action: operator.Discard, Title: "Discard", Done: "discarded", Deletes: true,
			Explained: "It is deleted for good: nobody will ever get it. What waits behind it under its key goes on without it.",
		}, nil
	case operator.Retry:
		return &letterAction{
			Action: operator.Retry, Title: "Retry now", Done: "retried",
			Explained: "The messages are handled at once, and not only when their pauses are over. What waits behind them under their keys follows.",
		}, nil
	default:
		return nil, fmt.Errorf("action: %q is none of replay, discard and retry", action)
	}
}

// actView is the data of the page that asks for a reason before an action.
type actView struct {
	Act    *letterAction
	Refs   []ref
	Reason string
	// Wrong is what is missing in the form, "" when it is first shown.
	Wrong string
	// Back is the query of the list that the actor came from.
	Back string
}

// BackTo returns the address of the list that the actor came from.
func (a *actView) BackTo() string { return "dead?" + a.Back }

// order is a form, or an address that leads to a form: the action, the dead letters it is for, and the reason.
type order struct {
	act    *letterAction
	refs   []ref
	reason string
	back   string
}

func orderOf(c *Console, q url.Values) (o order, err error) {
	if o.act, err = letterActionOf(q.Get(fieldAction)); err != nil {
		return o, err
	}
	if o.act.Action == operator.Retry {
		return o, fmt.Errorf("action: %s is for messages that are tried again, and not for dead letters", o.act.Action)
	}
	if o.refs, err = refsOf(c, q); err != nil {
		return o, err
	}
	o.reason, o.back = strings.TrimSpace(q.Get(fieldReason)), q.Get(fieldBack)
	if o.back == "" && len(o.refs) > 0 { // the actor came from the page of one of them
		o.back = url.Values{fieldBox: {string(o.refs[0].Box)}}.Encode()
	}
	return o, nil
}

// showConfirm shows the dead letters that are about to be changed, and asks for the reason.
func showConfirm(v *visit) error {
	q := v.URL.Query()
	if v.Method == http.MethodPost {
		q = v.PostForm
	}
	o, err := orderOf(v.Console, q)
	if err != nil {
		return invalid(err)
	}
	if len(o.refs) == 0 {
		return &problem{http.StatusUnprocessableEntity, "Nothing is selected", "Go back and tick the dead letters that you mean."}
	}
	return v.show("confirm", o.act.Title, &actView{Act: o.act, Refs: o.refs, Back: o.back})
}

// actOn runs the confirmed action on one dead letter after the other, each in a transaction of its own.
func actOn(v *visit) error {
	o, err := orderOf(v.Console, v.PostForm)
	if err != nil {
		return invalid(err)
	}
	if wrong := reasonProblem(o.reason); wrong != "" || len(o.refs) == 0 {
		view := &actView{Act: o.act, Refs: o.refs, Reason: o.reason, Wrong: wrong, Back: o.back}
		return v.write(http.StatusUnprocessableEntity, "confirm", v.page(o.act.Title, view))
	}
	done := 0
	// One letter that cannot be treated does not stop the others. The actor sees afterwards which failed and why.
	var failures []facts.Detail
	for _, r := range o.refs {
		if err := v.view().Dead().Act(v.Context(), o.act.Action, r.LetterRef, v.by(o.reason)); err != nil {
			failures = append(failures, facts.Detail{Name: r.ID, Value: v.tell(err)})
			continue
		}
		done++
	}
	v.log.InfoContext(v.Context(), "oncebox: an operator acted on dead letters on the console", "actor", v.access.Actor, "action", o.act.Action,
		"done", done, "failed", len(failures))
	if len(failures) > 0 {
		view := &outcome{Act: o.act, Done: done, Failures: failures, Back: backTo(v, o.back, nil)}
		return v.write(http.StatusConflict, "outcome", v.page(o.act.Title, view))
	}
	said := url.Values{fieldDone: {string(o.act.Action)}, fieldNumber: {strconv.Itoa(done)}}
	if done == 1 {
		said.Set(fieldOf, o.refs[0].ID)
	}
	v.redirect(backTo(v, o.back, said))
	return nil
}

// outcome is the data of the page that shows which dead letters were treated and which were not.
type outcome struct {
	Act      *letterAction
	Done     int
	Failures []facts.Detail
	Back     string
}

// tell returns the text that explains to the actor why a dead letter could not be treated. Errors that an operator can do nothing about are logged.
func (v *visit) tell(err error) string {
	if p, known := errors.AsType[*problem](explained(err)); known {
		return p.title
	}
	v.log.ErrorContext(v.Context(), "oncebox: the console could not treat a dead letter", "error", err)
	return "An error, which the log of this process has. Nothing was changed."
}

// reasonProblem returns what is wrong with a reason, "" if it is fine.
func reasonProblem(reason string) string {
	switch {
	case reason == "":
		return "Say why: the reason stays in the audit."
	case len(reason) > maxReason:
		return fmt.Sprintf("The reason has %d bytes, and the audit keeps %d.", len(reason), maxReason)
	default:
		return ""
	}
}

// unexplained returns the problem for a form whose reason cannot be used, see reasonProblem.
func unexplained(wrong string) error {
	return &problem{http.StatusUnprocessableEntity, "The reason is missing or too long", "Nothing was changed. " + wrong}
}

// Fields of the address of a page that reports what was done: the action, the number of things, and the event, if it was a single one.
const (
	fieldDone   = "done"
	fieldNumber = "n"
	fieldOf     = "of"
)

// backTo returns the address of the list. back is its query, which came through a form and may be anything; more is added to it.
func backTo(v *visit, back string, more url.Values) string {
	q, err := url.ParseQuery(back)
	if err != nil {
		q = url.Values{}
	}
	// The filter of the list cannot be read. The actor gets the whole list of the box, and not an error after the action was done.
	s, err := selected(v.Console, q, v.now)
	if err != nil {
		s = boxOf(ops.Box(q.Get(fieldBox)))
	}
	return "dead?" + frame.With(s.Values(), more).Encode()
}

// lifeOf returns the address of the page of the event that was treated last, "" if several were.
func lifeOf(q url.Values) string {
	if id := q.Get(fieldOf); uuid.Validate(id) == nil {
		return frame.Event(id, "")
	}
	return ""
}

// notice returns the sentence that reports what was done on the page before.
// notice gets its words from this program only. An address that somebody made up can change the number and the action,
// but shows no text of its own.
func notice(q url.Values) string {
	d, err := letterActionOf(q.Get(fieldDone))
	if err != nil {
		return ""
	}
	n, err := strconv.ParseInt(q.Get(fieldNumber), 10, 64)
	if err != nil {
		return ""
	}
	return words.Counted(n, "dead letter was ", "dead letters were ") + d.Done + "."
}

const fieldPayload = "payload"

// editView is the data of the page on which an operator changes the payload of a dead letter before its replay.
type editView struct {
	letter

	Text   string
	Reason string
	Wrong  string
}

// showEdit shows the payload of a dead letter in a form.
func showEdit(v *visit) error {
	view, err := editOf(v, v.URL.Query())
	if err != nil {
		return err
	}
	// JSON is indented for the form. The form then sends the indented text, so an edit also changes the whitespace of the payload.
	var pretty bytes.Buffer
	if json.Indent(&pretty, view.Envelope.Payload, "", "  ") == nil {
		view.Text = pretty.String()
	}
	return v.show("edit", "Edit and replay", view)
}

// editOf reads the dead letter that the query names. It fails if the payload is not text.
func editOf(v *visit, q url.Values) (*editView, error) {
	r, err := refOf(v.Console, q)
	if err != nil {
		return nil, invalid(err)
	}
	l, err := readLetter(v, r)
	if err != nil {
		return nil, explained(err)
	}
	// NUL is valid UTF-8, but browsers replace it in a form, so the payload would change without a trace.
	payload := l.Envelope.Payload
	if !utf8.Valid(payload) || bytes.ContainsRune(payload, 0) || len(payload) > facts.MaxShown {
		return nil, &problem{
			http.StatusUnprocessableEntity, "This payload cannot be edited here",
			fmt.Sprintf("It is no text, or has more than %s bytes: it may be encrypted or compressed.", words.Group(facts.MaxShown)),
		}
	}
	return &editView{letter: l, Text: string(payload)}, nil
}

// replayEdited replays a dead letter with a changed payload.
func replayEdited(v *visit) error {
	form := v.PostForm
	q, err := url.ParseQuery(form.Get("ref"))
	if err != nil {
		return invalid(err)
	}
	view, err := editOf(v, q)
	if err != nil {
		return err
	}
	// Browsers end the lines of a form's text with \r\n.
	view.Text, view.Reason = strings.ReplaceAll(form.Get(fieldPayload), "\r\n", "\n"), strings.TrimSpace(form.Get(fieldReason))
	if view.Wrong = payloadProblem(view); view.Wrong == "" {
		view.Wrong = reasonProblem(view.Reason)
	}
	if view.Wrong != "" {
		return v.write(http.StatusUnprocessableEntity, "edit", v.page("Edit and replay", view))
	}
	err = v.view().Dead().ReplayEdited(v.Context(), view.Ref.LetterRef, []byte(view.Text), v.by(view.Reason))
	if err != nil {
		return explained(err)
	}
	v.log.InfoContext(v.Context(), "oncebox: a dead letter was edited and replayed on the console", "actor", v.access.Actor, "ref", view.Ref.String())
	v.redirect("dead?" + url.Values{fieldBox: {string(view.Ref.Box)}, fieldDone: {string(operator.Replay)}, fieldNumber: {"1"},
		fieldOf: {view.Ref.ID}}.Encode())
	return nil
}

// payloadProblem returns what is wrong with a changed payload, "" if it is fine. A payload that was JSON must stay JSON: its consumers decode it, and a
// typing error would make it a dead letter again.
func payloadProblem(view *editView) string {
	switch {
	case view.Text == "":
		return "The payload is empty."
	case json.Valid(view.Envelope.Payload) && !json.Valid([]byte(view.Text)):
		var into any
		return "The payload was JSON and is not any more: " + json.Unmarshal([]byte(view.Text), &into).Error() + "."
	default:
		return ""
	}
}
