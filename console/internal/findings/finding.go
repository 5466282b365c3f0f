package findings

import (
	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/outlook"
	"github.com/oncebox/oncebox/console/internal/skin"
	"github.com/oncebox/oncebox/ops"
)

// The words of lines: what they ask for.
const (
	wordDown   = "down"   // something does not run, or handles nothing
	wordDecide = "decide" // an operator has to decide
	wordLook   = "look"   // an operator should look at it
	wordWait   = "wait"   // it passes by itself
)

// Finding is a line of the first page.
type Finding struct {
	// Who are the consumers whose names are the beginning of the line, with links to their pages. Text is the rest of the line, and leads to Href.
	Who        []Link
	Text, Href string
	// Word says what the line asks for, in the class State of the stylesheet.
	Word, State string
	// Ahead says what becomes of it by itself, Versions in which versions it fails (processes.FailsIn), and Said what operators said about it before.
	Ahead, Versions, Said string
	// Acts lead to forms that do something about it.
	Acts []Link
	// Under are the findings that follow from this one.
	Under []Finding
}

// place is the place of a line in the list: what is down comes first, also a consumer whose every message fails.
func (f *Finding) place() int {
	if f.Word == wordDown {
		return 0
	}
	return 1
}

// Link is a text with an address.
type Link struct{ Name, Href string }

// who returns links to the pages of consumers.
func who(names ...string) (list []Link) {
	for _, name := range names {
		list = append(list, Link{name, consumer.Href(name)})
	}
	return list
}

// down returns a line about something that does not run.
func down(text, href string, kind ops.Kind) Finding {
	return Finding{State: skin.Bad, Text: text, Href: href, Word: wordDown, Ahead: outlook.OfKind(kind)}
}

// decide returns a line about something that waits for a decision.
func decide(text, href string, kind ops.Kind) Finding {
	return Finding{State: skin.Bad, Text: text, Href: href, Word: wordDecide, Ahead: outlook.OfKind(kind)}
}

// look returns a line about something that needs no decision.
func look(text, href, ahead string) Finding {
	return Finding{State: skin.Warn, Text: text, Href: href, Word: wordLook, Ahead: ahead}
}

// wait returns a line about something that passes by itself.
func wait(text, href, ahead string) Finding {
	return Finding{State: skin.Plain, Text: text, Href: href, Word: wordWait, Ahead: ahead}
}
