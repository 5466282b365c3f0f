package oncebox_test

import "regexp"

// phrase is a form of words that a reader has to read twice. docs/adr/0076 says what the kinds are.
type phrase struct {
	kind    string
	pattern *regexp.Regexp // matched in lower case, within one paragraph
	except  *regexp.Regexp // a match that this matches too is good English; nil: none
	plant   string         // a sentence that the pattern must find
	fine    string         // one that it must not find
	code    int            // how many hits the Go code may still have; it may only fall
}

// phrases are the forms of words that pages avoid. To add one, give it a plant and a sentence that looks alike and is fine.
var phrases = []phrase{
	{"noun", regexp.MustCompile(`\bone that\b`), nil,
		"It waits behind one that failed.", "It waits behind an event that failed.", 2},
	{"noun", regexp.MustCompile(`\bones? (of which|in which|with which|whose|who)\b`), nil,
		"It takes the one whose lease has ended.", "It takes the lane whose lease has ended.", 0},
	{"noun", regexp.MustCompile(`\bthose (that|which|who|whose|of which)\b`), nil,
		"It skips those that are paused.", "It skips tenants that are paused.", 0},
	{"noun", regexp.MustCompile(`\bthe one (and|or|emit|is|was|waits|has) (an? |the )?(\w+ )?(\w+ )?(of )?the other\b`), nil,
		"Let the one emit an event of the other.", "The first one waits, the other goes on.", 0},
	{"noun", regexp.MustCompile(`(^|[.:;,] |\b(of|to|for|from|behind) )who (comes|has|reads|looks|writes|holds|stores|cannot|` +
		`sends|serves|sets|wants|needs|is|waits|hears|means)\b`),
		regexp.MustCompile(`^, (and |or )?who|person and who`),
		"Who comes second waits.", "Ask the person who holds the key.", 0},
	{"noun", regexp.MustCompile(`\bwhoever\b`), nil,
		"Whoever has the lease writes.", "The owner of the lease writes.", 0},
	{"noun", regexp.MustCompile(`\b(behind|beyond|below|before|of|for|from|by|with|without) what (is|was|are|were|has|had|waits|` +
		`waited|arrives|arrived|comes|came|follows|leaves|left|fails|failed)\b`), nil,
		"It goes past what is in front of what waits: it looks for what is behind a topic.", "Tell us what is missing.", 1},
	{"flow", regexp.MustCompile(`\b(is|are|was|were|be|been|being|gets?|got) told\b( \w+)?`), regexp.MustCompile(`told (apart|to)\b`),
		"advance is told that nothing was left.", "The process is told to stop.", 0},
	{"flow", regexp.MustCompile(`\btells?\b( \w+)?`), regexp.MustCompile(`tells? (apart|you|us|me)\b`),
		"sure tells whether there are others.", "The page shows the state.", 5},
	{"flow", regexp.MustCompile(`\btold (of|by|that|whether)\b`), nil,
		"It was a failure that nobody had told of.", "It was a failure that nobody had reported.", 0},
	{"flow", regexp.MustCompile(`\b(hears?|heard)\b`), nil,
		"A projector hears of a commit.", "A projector receives the notification.", 4},
	{"flow", regexp.MustCompile(`\b(go|goes|went|gone) by (it|its|that|the|what|this|a|an)\b`), nil,
		"The relay goes by the mark.", "The relay follows the mark.", 0},
	{"flow", regexp.MustCompile(`\b(has|have|had) (the|its|a|an|each|every|all|any|them|it|others|all others|the next \w+) (\w+ )?(refuse|` +
		`wait|make|read|fail|be|look|die|write|store|drop|end|put|renew|take|go|start|begin|keep|send|` +
		`log|stop|run|show|commit|publish|handle|count)\b( \w+)?`),
		regexp.MustCompile(`(wait|end|store|look|log|run|count|start|stop|drop|show) (of|for its|in the|is|was|that|to)\b`),
		"prove has the next renewal store how far it is.", "The table has a row per lane.", 0},
	{"flow", regexp.MustCompile(`\bnobody (said|says|asked|asks|tells|told|hears|heard)\b`), nil,
		"Nobody says so of a transaction.", "Nobody reads the row.", 0},
	{"denial", regexp.MustCompile(`(\b\w+ )?\b(is|are|was|were) none\b( of\b)?`), regexp.MustCompile(`^there (is|are|was|were)|none of$`),
		"An identifier that is none stays metadata.", "There is none.", 0},
	{"denial", regexp.MustCompile(`\bnone at all\b`), nil,
		"The last one is none at all.", "There are no others.", 0},
	{"denial", regexp.MustCompile(`\b(is|are|was|were) no matter\b`), nil,
		"A single failure is no matter.", "No matter how long it takes, it ends.", 0},
	{"denial", regexp.MustCompile(`(\b\w+ )?\b(is|are|was|were) no (try|failure|error|success|reason|outage|json|event|unit|handler|` +
		`commit|mistake|answer|refusal|duplicate|retry|retries|dead letter|dead letters|part of|guard|` +
		`place|proof of|difference|sign|work|lottery|attempt|question|use)\b`),
		regexp.MustCompile(`^there (is|are|was|were)`),
		"A postponement is no try.", "There is no failure.", 0},
	{"order", regexp.MustCompile(`\b(is|are|was|were) of which\b`), nil,
		"Lanes are of which this worker does not know it.", "The lane of which it knows is served.", 0},
	{"order", regexp.MustCompile(`\b(up to|as of|beyond) which\b`), nil,
		"It is a number up to which all is sent.", "All numbers up to this one are sent.", 0},
	{"order", regexp.MustCompile(`\bof whom\b|\bwhereof\b|\bwherein\b|\bwhereby\b`), nil,
		"The tenant of whom it is.", "The tenant of the event.", 0},
	{"setting", regexp.MustCompile(`\b(is|are) (after|for|up to|behind|from|at|within|by|in|until|beyond) how\b`), nil,
		"MaxCrashes is after how many crashes a row is dead.", "MaxCrashes is how often a process may crash.", 0},
	{"setting", regexp.MustCompile(`\b(is|are) (the time|a number|a sequence|the number|a moment) (after|for|up to|until|within|beyond) which\b`), nil,
		"PassedTo is a sequence up to which rows are paused.", "Every row with a number up to this is paused.", 1},
	{"metaphor", regexp.MustCompile(`\b(farewell|attendance|acquit\w*|accus\w+|suspects?|suspected|crowded|guilty|innocent|culprits?|` +
		`lottery|verdicts?|deeds?|glances?|funeral\w*|obituar\w+)\b`), nil,
		"The row is acquitted.", "The row is counted.", 9},
}
