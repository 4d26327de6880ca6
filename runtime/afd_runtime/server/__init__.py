"""The gateway: an OpenAI-compatible server that owns its clients' requests.

    HTTP body --asked--> options --template, tokenizer--> tokens --ownership--> Submit
                                                                     |  units, link
    HTTP answer <--answers-- text <--detokenise, stop-- tokens <-----+

    errors      what a client is told when it cannot be served (answer_errors: around every handler)
    bodies      request bodies by type            answers     response bodies
    asked       what they ask for, validated      defaults    what they leave to the checkpoint
    template    messages -> prompt                tokenizer   prompt <-> tokens
    detokenise  tokens -> text that is settled    stop        text up to a stop string
    ownership   one request over any number of attempts
    link        one connection to one coordinator
    units       all coordinators: who gets a request, and who gets it when that one is lost
    choices     one request's answers, as text    http        routes and streaming

A client is never given a token twice and never misses one, whatever happens behind the gateway.
Nothing here imports a tensor library.
"""
