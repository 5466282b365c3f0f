package findings

import (
	"net/url"
	"strings"

	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/flood"
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/tenant"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// flood returns the line about a flood. It only says that it waits, until the messages are late.
func (f *Facts) flood(o *flood.Flood) Finding {
	href := frame.Consumers
	if len(o.Names) == 1 {
		href = consumer.Href(o.Names[0])
	}
	line := look(o.Text(f.Now), href, outlook.OfKind(ops.ConsumerBehind))
	if !o.Late {
		line = wait(line.Text, href, "Nothing is lost: the messages are handled in their turn.")
	}
	line.Who = who(o.Names...)
	if f.Act && o.Sender.Sends() {
		line.Acts = []Link{{"Pause " + o.Sender.Tenant + "…", tenant.Form(operator.Pause, o.Sender.Tenant)}}
	}
	return line
}

// unknown returns the consumers whose broker has not reported how many messages wait.
func (f *Facts) unknown() (list []Finding) {
	unknown, reading := consumer.Unknown(f.Consumers, f.Now)
	if len(unknown) > 0 {
		line := look("nobody knows how many messages wait at the broker, because it has given no answer for a minute.", frame.Consumers,
			"It is asked again every 15 seconds. If this line stays for minutes, look at the broker's own state.")
		line.Who = who(unknown...)
		line.Who[len(unknown)-1].Name += ":"
		list = append(list, line)
	}
	if len(reading) > 0 {
		list = append(list, wait("How many messages wait for "+strings.Join(reading, ", ")+" at the broker is read again, because they have just connected.",
			frame.Consumers, "The numbers come by themselves, within a minute."))
	}
	if outdated := consumer.Outdated(f.Consumers); len(outdated) > 0 {
		list = append(list, wait("How many messages wait for "+strings.Join(outdated, ", ")+" at the broker is counted again: the last count is older "+
			"than what an operator has set in motion.", frame.Consumers, "The numbers come by themselves, within half a minute."))
	}
	return list
}

// consumer returns the pause of a consumer, and the messages that it gave up.
func (f *Facts) consumer(r *consumer.Row) (list []Finding) {
	name := r.Stats.Consumer
	if r.Pause.IsSet() && len(r.Troubles()) == 0 { // a long pause is a trouble, which stands above
		list = append(list, f.pause(r))
	}
	if r.DeadLetters > 0 {
		letters := frame.Address("dead", url.Values{"box": {string(ops.BoxInbox)}, "consumer": {name}})
		line := decide("gave up "+words.Counted(int64(r.DeadLetters), "message", "messages")+f.deadOf(name)+".", letters, ops.MessageDead)
		line.Who = who(name)
		list = append(list, line)
	}
	return list
}

// deadOf names the type and the error of a consumer's dead letters, "" if no cause has them.
func (f *Facts) deadOf(name string) string {
	for n := range f.Causes {
		c := &f.Causes[n]
		if c.Kind != ops.MessageDead || c.Consumer != name {
			continue
		}
		text := ": " + c.Type
		if c.Count == 1 && c.Tenant != "" {
			text += " of the tenant " + c.Tenant
		}
		return text + ", " + words.Cause(c.Text)
	}
	return ""
}
