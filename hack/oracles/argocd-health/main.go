// Says what health Argo CD would give to an object: runs the script in the Lua interpreter that Argo CD uses, with the
// libraries that it opens.
//
// Reads lines of JSON: [SCRIPT, OBJECT]. Writes one JSON object a line: {"status": …, "message": …} or {"error": …}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	lua "github.com/yuin/gopher-lua"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var asked []json.RawMessage
		var script string
		var object any
		if json.Unmarshal(in.Bytes(), &asked) != nil || len(asked) != 2 || json.Unmarshal(asked[0], &script) != nil || json.Unmarshal(asked[1], &object) != nil {
			fmt.Fprintln(os.Stderr, "bad request:", in.Text())
			os.Exit(2)
		}
		said, _ := json.Marshal(health(script, object))
		fmt.Println(string(said))
	}
}

func health(script string, object any) map[string]string {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{
		lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString,
	} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return map[string]string{"error": err.Error()}
		}
	}
	state.SetGlobal("obj", value(state, object))
	if err := state.DoString(script); err != nil {
		return map[string]string{"error": err.Error()}
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return map[string]string{"error": "the script returned no table"}
	}
	return map[string]string{"status": lua.LVAsString(table.RawGetString("status")), "message": lua.LVAsString(table.RawGetString("message"))}
}

func value(state *lua.LState, from any) lua.LValue {
	switch from := from.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, member := range from {
			table.RawSetString(key, value(state, member))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range from {
			table.Append(value(state, item))
		}
		return table
	case string:
		return lua.LString(from)
	case float64:
		return lua.LNumber(from)
	case bool:
		return lua.LBool(from)
	default:
		return lua.LNil
	}
}
